"""Tables of the jobs room. Fields, constraints and reads; every write of a state is in `jobs/lifecycle/`.

References upwards are strings: this room knows nobody above it.
"""

from jobs.models.history import AuditEvent, JobEvent
from jobs.models.installation import RemoteSwitch, Uptime
from jobs.models.job import Job, JobQuerySet, NextSeq
from jobs.models.lease import Lease, Reservation
from jobs.models.needs import Requirement
from jobs.models.output import Artifact, LogChunk

__all__ = [
    "Artifact",
    "AuditEvent",
    "Job",
    "JobEvent",
    "JobQuerySet",
    "Lease",
    "LogChunk",
    "NextSeq",
    "RemoteSwitch",
    "Requirement",
    "Reservation",
    "Uptime",
]
