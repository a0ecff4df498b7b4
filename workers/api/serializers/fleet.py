"""The operators' side: workers with what is left on them, and the acts on their standing."""

from __future__ import annotations

from rest_framework import serializers

from workers.api.fields import Text
from workers.api.serializers.base import Message, Shared


class StandingIn(Message):
    """Why an operator does it; kept in the audit."""

    reason = Text(clip=255, required=False, default="")


class LeftOut(Shared):
    """One thing that is left on a worker."""

    lease = serializers.UUIDField()
    space = serializers.CharField(allow_null=True, help_text="owner/repo; null where nobody here knows the lease")
    state = serializers.CharField(help_text="of its job, or removing, or unknown")
    since = serializers.DateTimeField(allow_null=True)
    deadline_at = serializers.DateTimeField(allow_null=True, help_text="of what is being stopped: when it is killed")


class DrainOut(Shared):
    """How far draining or disabling is."""

    complete = serializers.BooleanField(allow_null=True, help_text="null: not known, because the worker does not say")
    left = LeftOut(many=True)


class RefusedFieldOut(Shared):
    """One field of a report and why it is refused."""

    field = serializers.CharField()
    detail = serializers.CharField()


class RefusedOut(Shared):
    """A worker's reports are refused as invalid: it is alive, its leases are not renewed, and it gets no jobs."""

    since = serializers.DateTimeField()
    # Only a description: nothing reads the property of that name that this hides.
    errors = RefusedFieldOut(many=True)  # type: ignore[assignment]


class HeldOut(Shared):
    """A container of a lease that nobody here knows."""

    lease = serializers.UUIDField()
    gpu_mib = serializers.IntegerField(allow_null=True, help_text="null: not measured, or it uses no GPU")
    removal_asked = serializers.BooleanField(help_text="an operator wants it removed, and it is still there")


class NotReleasedOut(Shared):
    """A lease that is over and still held, because a GPU has not given back the memory that its app used."""

    lease = serializers.UUIDField()
    reason = serializers.CharField(help_text="who holds how much of it, and what to do")
    freed = serializers.BooleanField(help_text="an operator has freed the GPU in spite of it")


class DeliveringOut(Shared):
    """A batch job whose app has ended and whose results are on their way."""

    lease = serializers.UUIDField()
    space = serializers.CharField()
    since = serializers.DateTimeField()
    files = serializers.IntegerField(help_text="as announced; 0: its worker did not say")
    files_here = serializers.IntegerField()
    bytes = serializers.IntegerField(help_text="as announced")
    bytes_here = serializers.IntegerField()


class FleetWorkerOut(Shared):
    """One worker for operators; more fields than these may be there."""

    worker_id = serializers.UUIDField()
    name = serializers.CharField()
    standing = serializers.CharField(help_text="online, refused, draining, disabled, paused, offline, new or revoked")
    scheduling = serializers.CharField(help_text="open, draining or disabled")
    reason = serializers.CharField()
    online = serializers.BooleanField()
    stale = serializers.BooleanField(help_text="not heard: all figures are those of its last report")
    refused = RefusedOut(allow_null=True, help_text="null: its reports are taken")
    jobs = serializers.IntegerField(help_text="leases that it has not cleared")
    delivering = DeliveringOut(many=True)
    drain = DrainOut(allow_null=True)
    held = HeldOut(many=True, help_text="containers on hold")
    not_released = NotReleasedOut(many=True)
    gpus = serializers.ListField(child=serializers.DictField())


class FleetOut(Shared):
    remote_workers_enabled = serializers.BooleanField(help_text="false: OPENFACE_GPU_WORKERS_ENABLED is off")
    workers = FleetWorkerOut(many=True)


class StandingOut(Shared):
    """A worker's standing after an operator's act: three facts, and what is left on it."""

    worker_id = serializers.UUIDField(source="id")
    name = serializers.CharField()
    scheduling = serializers.CharField(help_text="open, draining or disabled")
    reason = serializers.CharField(source="scheduling_reason")
    revoked_at = serializers.DateTimeField(allow_null=True)
    forgotten_at = serializers.DateTimeField(allow_null=True, help_text="in no list any more; its name is free")
    drain = DrainOut(allow_null=True, default=None)
