"""Whether remote GPU workers, and simulated GPUs, may take part here: two settings, as one truth for all processes.

`OPENFACE_GPU_WORKERS_ENABLED` is read when a process starts. Were each process to act on its own copy, two that were
started with different values (in the middle of a restart) would move jobs to and fro. So the web process that started
last writes its value into the database, and everybody acts on that. `OPENFACE_ALLOW_SIMULATED_GPUS` likewise: a command
on a shell with other settings would tell of another fleet than the one that takes jobs (`jobs.books` reads both).
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now

from jobs import notices
from jobs.models import Lease, RemoteSwitch

logger = logging.getLogger(__name__)

SWITCHED_OFF = "gpu_workers_disabled"  # the reason code of what the flag does to a job, and of what it refuses


def remote_workers_enabled() -> bool:
    """Whether workers that are not local may enroll, claim and serve. One query.

    Before any web process has started on this database, this process's own setting counts.
    """
    declared = RemoteSwitch.objects.values_list("enabled", flat=True).first()
    return bool(settings.OPENFACE_GPU_WORKERS_ENABLED) if declared is None else declared


def is_withheld(lease: Lease) -> bool:
    """Whether this lease's worker may not serve now, because it is remote and remote workers are switched off."""
    return not lease.worker.local and not remote_workers_enabled()


def declare() -> bool:
    """Make this process's settings those that count. Called when a web process starts; returns whether one changed.

    Nothing is moved here: the keeper's next sweep acts on it (`jobs.rescue`), and heartbeats and claims read it.
    """
    wanted, simulated = bool(settings.OPENFACE_GPU_WORKERS_ENABLED), bool(settings.OPENFACE_ALLOW_SIMULATED_GPUS)
    with transaction.atomic():
        declared = RemoteSwitch.objects.select_for_update(no_key=True).filter(pk=1).first()
        if declared is None:
            row = RemoteSwitch(pk=1, enabled=wanted, simulated_gpus=simulated)
            RemoteSwitch.objects.bulk_create([row], ignore_conflicts=True)
            return True
        if (declared.enabled, declared.simulated_gpus) == (wanted, simulated):
            return False
        since = {} if declared.enabled == wanted else {"since": Now()}
        RemoteSwitch.objects.filter(pk=1).update(enabled=wanted, simulated_gpus=simulated, **since)
        notices.publish("work")  # what waited for these workers may go now, or knows a new reason
    if declared.enabled != wanted:
        logger.warning(
            "remote GPU workers are switched %s", "on" if wanted else "off", extra={"action": "remote_workers_switched"}
        )
    return True
