"""The life of a job. The only code that writes `Job.state`, `Lease` and `Reservation` rows.

Every function is one short transaction: row lock, look-up in `jobs.states`, guarded update, event row, notice.
Views, the worker API, admin actions, commands and the keeper each parse, authorise, and call one function here.

Locks are FOR NO KEY UPDATE, always in the order space → worker → job (by `seq`) → lease → reservation. A caller that
starts at a job never locks a worker or a space.
"""

from __future__ import annotations

from jobs.lifecycle.claiming import Claim, claim_for, claim_next
from jobs.lifecycle.freeing import write_off
from jobs.lifecycle.holds import Hold, Instruction, renew_lease, sync_holds
from jobs.lifecycle.lapses import cut_off_worker, expire_lease, give_up, let_go, mark_silent, withhold
from jobs.lifecycle.overuse import end_overuse, warn_of_overuse
from jobs.lifecycle.placing import reclass_queued, waits_in_line
from jobs.lifecycle.reports import LogText, Recorded, Report, record
from jobs.lifecycle.stopping import request_stop, stop_space
from jobs.lifecycle.submission import Submission, submit

__all__ = [
    "Claim",
    "Hold",
    "Instruction",
    "LogText",
    "Recorded",
    "Report",
    "Submission",
    "claim_for",
    "claim_next",
    "cut_off_worker",
    "end_overuse",
    "expire_lease",
    "give_up",
    "let_go",
    "mark_silent",
    "reclass_queued",
    "record",
    "renew_lease",
    "request_stop",
    "stop_space",
    "submit",
    "sync_holds",
    "waits_in_line",
    "warn_of_overuse",
    "withhold",
    "write_off",
]
