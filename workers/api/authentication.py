"""Who calls: a worker with its credential, or a member of staff with a session.

A worker credential opens the endpoints of that worker and nothing else: no other view knows this class.
"""

from __future__ import annotations

import re
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from rest_framework.authentication import BaseAuthentication, SessionAuthentication, get_authorization_header
from rest_framework.request import Request

from workers import credentials
from workers.addresses import check_network, client_address
from workers.errors import CredentialInvalid, CredentialRevoked
from workers.models import Worker

# Written out and narrow, because it runs with every call of every worker.
_KNOWN_BY = "SELECT id, name, local, credential_hash, revoked_at FROM workers_worker WHERE id = %s"


class WorkerAuthentication(BaseAuthentication):
    """`Authorization: Bearer ofw_…`. `request.auth` is then the Worker; `request.user` stays nobody. One query.

    Without any Authorization header another authenticator may try. Raises CredentialInvalid, CredentialRevoked,
    AddressNotAllowed.
    """

    def authenticate(self, request: Request) -> tuple[AnonymousUser, Worker] | None:
        header = get_authorization_header(request)
        if not header:
            return None
        check_network(address_of(request))
        return AnonymousUser(), worker_of(header)

    def authenticate_header(self, request: Request) -> str:
        # Its presence is what keeps DRF from turning our 401 into 403.
        return 'Bearer realm="openface-worker"'


class StaffSession(SessionAuthentication):
    """A session of the portal, with CSRF protection. Who may do what is the view's question."""

    def authenticate_header(self, request: Request) -> str:
        return "Session"


def worker_of(authorization: bytes) -> Worker:
    """Return the worker of an Authorization header. Raises CredentialInvalid, CredentialRevoked."""
    match = re.fullmatch(rb"bearer +(\S+)", authorization.strip(), re.IGNORECASE)
    credential = credentials.parse(match[1].decode("latin-1")) if match else None
    if credential is None:
        raise CredentialInvalid
    worker = next(iter(Worker.objects.raw(_KNOWN_BY, [credential.worker_id])), None)
    if not credentials.matches(credential, worker.credential_hash if worker else "") or worker is None:
        raise CredentialInvalid
    if worker.revoked_at is not None:
        raise CredentialRevoked(proof=credentials.revocation_proof(worker.pk, worker.credential_hash))
    return worker


def address_of(request: Request | HttpRequest) -> str:
    """Return the caller's address, "" where unknown."""
    meta: dict[str, Any] = request.META
    return client_address(meta.get("REMOTE_ADDR") or "", meta.get("HTTP_X_FORWARDED_FOR") or "")
