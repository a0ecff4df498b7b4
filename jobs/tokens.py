"""The two tokens of a lease. Derived, never stored: source reads the repository, runtime opens the worker's gateway.

The runtime token of a batch job, which has no gateway, delivers its results instead: a worker that was restarted gets
it again with the answer to register, while the source token is gone with the process that had it.
"""

from __future__ import annotations

import hashlib
import hmac

from django.conf import settings

from jobs.models import Lease


class UnknownLeaseKey(Exception):
    """The key that this lease's tokens were derived from is no longer configured."""


def lease_keys() -> dict[str, bytes]:
    """Key by id, newest first, from OPENFACE_LEASE_KEYS ("id:hex,…")."""
    pairs = (entry.partition(":") for entry in settings.OPENFACE_LEASE_KEYS)
    return {key_id: bytes.fromhex(key) for key_id, _, key in pairs}


def newest_key_id() -> str:
    """The id of the key that new leases use."""
    return next(iter(lease_keys()))


def runtime_token(lease: Lease) -> str:
    """Opens `<gateway>/lease/<lease>/…` on the worker. Raises UnknownLeaseKey."""
    return _derive("runtime", lease)


def source_token(lease: Lease) -> str:
    """Reads the lease's repository while the job is leased or building. Raises UnknownLeaseKey."""
    return _derive("source", lease)


def check_source_token(lease: Lease, token: str) -> bool:
    """Whether the token is this lease's. The caller checks the lease's state and repository."""
    try:
        return hmac.compare_digest(source_token(lease).encode(), token.encode("utf-8", "replace"))
    except UnknownLeaseKey:
        return False


def check_runtime_token(lease: Lease, token: str) -> bool:
    """Whether the token is this lease's. The caller checks the lease's state and what it opens."""
    try:
        return hmac.compare_digest(runtime_token(lease).encode(), token.encode("utf-8", "replace"))
    except UnknownLeaseKey:
        return False


def _derive(purpose: str, lease: Lease) -> str:
    key = lease_keys().get(lease.key_id)
    if key is None:
        raise UnknownLeaseKey(f"OPENFACE_LEASE_KEYS has no key with the id {lease.key_id!r} any more.")
    return hmac.new(key, f"{purpose}:{lease.pk}".encode(), hashlib.sha256).hexdigest()
