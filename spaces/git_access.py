"""Which repository a lease's source token opens: the job's own, and those that its writers could read anyway.

The user name is `lease` for the job's own repository (as in its clone URL), or the lease's id: that one opens other
repositories too, for submodules. Whoever can push to the job's repository decides what its build does with what it
reads; so another repository is opened only if **everybody who may push to the first may read the second**. The token
ends with the build. Nobody learns which repositories exist: a refusal is the same whatever the reason.
"""

from __future__ import annotations

import base64
import binascii
import uuid

from jobs.models import Lease
from jobs.states import JobState
from jobs.tokens import check_source_token
from spaces.forge import get_forge
from spaces.forge.base import SYSTEM, Repository
from spaces.forge.errors import ForgeError

OWN = "lease"  # the user name that opens the job's own repository
READABLE_WHILE = (JobState.LEASED, JobState.BUILDING)


def opened_by(authorization: bytes, owner: str, name: str) -> Repository | None:
    """Return the repository of that name if the header `Authorization` opens it. A handful of queries."""
    user, token = _credentials(authorization)
    if not token:
        return None
    lease = _lease_of(user, token, owner, name)
    if lease is None:
        return None
    job, forge = lease.job, get_forge()
    try:
        # By its id: it may have been renamed since the job was made.
        own = forge.get_repo_by_id(job.repository_id, viewer=SYSTEM)
        if (owner.lower(), name.lower()) == (job.owner.lower(), job.repo.lower()):
            return own
        other = forge.get_repo(owner, name, viewer=SYSTEM)
        return other if forge.writers_may_read(own, other) else None
    except ForgeError:  # deleted meanwhile, or never there: as if it never was
        return None


def _lease_of(user: str, token: str, owner: str, name: str) -> Lease | None:
    leases = Lease.objects.select_related("job").filter(
        released_at__isnull=True, job__state__in=READABLE_WHILE, worker__revoked_at__isnull=True
    )
    if user == OWN:
        leases = leases.filter(job__owner__iexact=owner, job__repo__iexact=name)
    else:
        try:
            leases = leases.filter(pk=uuid.UUID(user))
        except ValueError:
            return None
    return next((lease for lease in leases if check_source_token(lease, token)), None)


def _credentials(authorization: bytes) -> tuple[str, str]:
    """Return user and password of `Basic …`; two empty texts for anything else."""
    scheme, _, encoded = authorization.partition(b" ")
    if scheme.lower() != b"basic":
        return "", ""
    try:
        user, _, password = base64.b64decode(encoded.strip(), validate=True).decode("ascii").partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return user, password
