"""A lease that is over, and that its worker still lists, is taken off the books on an operator's word."""

from __future__ import annotations

import uuid

from django.db import transaction

from jobs import notices
from jobs.clock import database_now
from jobs.lifecycle.transition import clear
from jobs.models import Lease


def write_off(lease_id: uuid.UUID, *, worker_id: uuid.UUID) -> bool:
    """End what a lease that is over still reserves; False where it may still run its job, and nothing is changed.

    One of which nobody here has a row reserves nothing: that is True. Who waits for the worker's GPUs may have them
    now. The caller holds the lock of the worker's row.
    """
    with transaction.atomic():
        lease = Lease.objects.select_for_update(no_key=True).filter(pk=lease_id).first()
        if lease is not None:
            if lease.released_at is None or lease.worker_id != worker_id:
                return False
            clear(lease, now=database_now())
        notices.publish("work", worker=worker_id)
    return True
