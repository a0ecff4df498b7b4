"""Enrollment: a one-time token, issued by an operator, is swapped for a worker's durable credential.

Every step can be repeated: the same token with the same nonce gives the same answer while the token lives, because the
secret is derived from the two. Anything else with a used token is refused.
"""

from __future__ import annotations

import hmac
import logging
import re
import uuid
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.conf import settings
from django.db import IntegrityError, connection, transaction
from django.db.models.functions import Now

from jobs import audit
from jobs.audit import Actor
from jobs.clock import database_now
from jobs.switch import remote_workers_enabled
from workers import credentials, gateways
from workers.errors import (
    GpuWorkersDisabled,
    NameTaken,
    Throttled,
    TokenExpired,
    TokenUnknown,
    TokenUsed,
    UnknownWorker,
)
from workers.models import EnrollmentToken, Worker
from workers.reports import Enrollment

logger = logging.getLogger(__name__)

DEFAULT_LIFE = timedelta(minutes=15)
MAX_LIFE = timedelta(days=30)
ATTEMPTS_KEPT_MINUTES = 10  # counts are asked for the present minute only; a little history helps an operator
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")


@dataclass(frozen=True)
class IssuedToken:
    """A token at the only moment it can be read."""

    token: str
    row: EnrollmentToken


@dataclass(frozen=True)
class Enrolled:
    """What the machine gets for its token."""

    worker: Worker
    credential: credentials.Credential


def issue_token(
    name: str,
    *,
    actor: Actor = None,
    life: timedelta = DEFAULT_LIFE,
    gateway_url: str = "",
    local: bool = False,
    replace: bool = False,
) -> IssuedToken:
    """Make a token for a worker of this name. With `replace` it is bound to the existing worker of that name.

    Raises NameTaken, UnknownWorker (nothing to replace), ValueError (bad name, life or address).
    """
    if not _NAME.fullmatch(name):
        raise ValueError("A worker's name is 1 to 63 letters, digits, dots, dashes or underscores.")
    if not timedelta(0) < life <= MAX_LIFE:
        raise ValueError(f"A token lives for more than 0 seconds and at most {MAX_LIFE.days} days.")
    address = gateways.normalise(gateway_url) if gateway_url else ""
    existing = Worker.objects.kept().filter(name__iexact=name).first()
    if existing is not None and not replace:
        raise NameTaken(f"There is a worker {existing.name} already; --replace gives it a new credential.")
    if existing is None and replace:
        raise UnknownWorker(f"There is no worker {name} to replace.")
    token = credentials.new_token()
    with transaction.atomic():
        row = EnrollmentToken.objects.create(
            token_hash=credentials.digest(token),
            worker_name=existing.name if existing else name,
            local=local or (existing is not None and existing.local),
            gateway_url=address,
            replaces=existing,
            created_by=audit.actor_name(actor),
            expires_at=database_now() + life,
        )
        audit.record(
            "enrollment_token_issued",
            obj=row,
            actor=actor,
            after={"worker": row.worker_name, "local": row.local, "gateway_url": address, "replaces": bool(existing)},
        )
    return IssuedToken(token, row)


def revoke_token(token_id: uuid.UUID, *, actor: Actor = None, address: str | None = None) -> bool:
    """Make an unused token worthless; False where it was used, revoked or gone already."""
    with transaction.atomic():
        changed = EnrollmentToken.objects.filter(pk=token_id, used_at=None, revoked_at=None).update(revoked_at=Now())
        if changed:
            row = EnrollmentToken.objects.get(pk=token_id)
            audit.record("enrollment_token_revoked", obj=row, actor=actor, address=address)
    return bool(changed)


def count_attempt(address: str) -> None:
    """Count one call of enroll from this address; raise Throttled above the limit of the present minute.

    In the database, and committed before anything else is looked at: guessing in parallel processes is counted, too.
    """
    with connection.cursor() as cursor:
        cursor.execute(
            """INSERT INTO workers_enrollmentattempt (address, minute, count)
               VALUES (%s, date_trunc('minute', clock_timestamp()), 1)
               ON CONFLICT (address, minute) DO UPDATE SET count = workers_enrollmentattempt.count + 1
               RETURNING count, EXTRACT(EPOCH FROM minute + interval '1 minute' - clock_timestamp())""",
            [address or "0.0.0.0"],
        )
        count, seconds_left = cursor.fetchone()
        if count == 1:
            cursor.execute(
                "DELETE FROM workers_enrollmentattempt WHERE minute < clock_timestamp() - %s * interval '1 minute'",
                [ATTEMPTS_KEPT_MINUTES],
            )
    if count > settings.OPENFACE_ENROLL_PER_MINUTE:
        raise Throttled(retry_after_seconds=max(1.0, float(seconds_left)))


def enroll(enrollment: Enrollment, *, address: str) -> Enrolled:
    """Swap the token for a credential, once; the same token and nonce repeat the answer.

    Raises TokenUnknown, TokenUsed, TokenExpired, NameTaken, GpuWorkersDisabled.
    """
    try:
        with transaction.atomic():
            enrolled = _enroll(enrollment, address=address)
    except IntegrityError:  # another token for the same name was faster
        raise NameTaken from None
    logger.info("worker enrolled", extra={"action": "worker_enrolled", "worker": str(enrolled.worker.pk)})
    return enrolled


def _enroll(enrollment: Enrollment, *, address: str) -> Enrolled:
    token = (
        EnrollmentToken.objects.select_for_update(no_key=True)
        .filter(token_hash=credentials.digest(enrollment.token))
        .first()
    )
    if token is None:
        raise TokenUnknown
    if not (token.local or remote_workers_enabled()):
        raise GpuWorkersDisabled
    now = database_now()
    if token.used_at is not None:
        return _repeat(token, enrollment, now=now)
    if token.revoked_at is not None:
        raise TokenExpired("This enrollment token was revoked.")
    if now >= token.expires_at:
        raise TokenExpired
    worker = _worker_for(token, enrollment, address=address)
    credential = credentials.mint(worker.pk, token=enrollment.token, nonce=enrollment.nonce)
    Worker.objects.filter(pk=worker.pk).update(credential_hash=credentials.digest(credential.secret))
    EnrollmentToken.objects.filter(pk=token.pk).update(
        used_at=Now(), nonce_hash=credentials.digest(enrollment.nonce), worker=worker
    )
    return Enrolled(worker, credential)


def _repeat(token: EnrollmentToken, enrollment: Enrollment, *, now: datetime) -> Enrolled:
    """Give the first answer again, to the machine that got it and only while the token lives."""
    same_caller = hmac.compare_digest(token.nonce_hash, credentials.digest(enrollment.nonce))
    if not same_caller or token.worker is None or now >= token.expires_at:
        raise TokenUsed
    credential = credentials.mint(token.worker.pk, token=enrollment.token, nonce=enrollment.nonce)
    if token.worker.revoked_at is not None or not credentials.matches(credential, token.worker.credential_hash):
        raise TokenUsed  # revoked, or replaced by a later token
    return Enrolled(token.worker, credential)


def _worker_for(token: EnrollmentToken, enrollment: Enrollment, *, address: str) -> Worker:
    """Create the token's worker, or take the one that it replaces: same id, leases kept, older credential void."""
    if token.replaces_id is not None:
        worker = Worker.objects.select_for_update(no_key=True).get(pk=token.replaces_id)
        if worker.forgotten_at is not None:
            raise TokenExpired("The worker that this token would bring back was forgotten.")
        worker.revoked_at = None  # an operator who issues --replace wants it back
    else:
        if Worker.objects.kept().filter(name__iexact=token.worker_name).exists():
            raise NameTaken
        worker = Worker(name=token.worker_name)
    worker.local = token.local
    worker.enrolled_from = address or None
    worker.hostname = enrollment.hostname
    worker.version = enrollment.version
    if token.gateway_url:
        if token.gateway_url != worker.gateway_url:
            worker.gateway_status, worker.gateway_detail = Worker.Gateway.UNKNOWN, ""
        worker.gateway_url, worker.gateway_proposed_url, worker.gateway_fixed = token.gateway_url, "", True
    else:
        gateways.apply_proposal(worker, enrollment.gateway_url)
    worker.save()
    return worker
