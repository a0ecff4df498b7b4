"""What becomes of a job: numbered events and log text under one lease."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from workers import reports
from workers.api.fields import BIG, INT, Flag, Id, LogText, SnakeCase, Text, Whole, Word
from workers.api.serializers.base import OPTIONAL, Message, Shared, listed

STREAMS = ("build", "run", "system")
JOB_STATES = (
    "queued",
    "leased",
    "building",
    "starting",
    "running",
    "stopping",
    "unavailable",
    "completed",
    "failed",
    "cancelled",
)


class LogOffsets(Message):
    """Per stream the number of bytes of UTF-8 text; an absent stream is at 0."""

    build = Whole(max_value=BIG, required=False)
    run = Whole(max_value=BIG, required=False)
    system = Whole(max_value=BIG, required=False)


class LogIn(Message):
    shape = reports.LogReport
    stream = Word(choices=STREAMS)
    offset = Whole(max_value=BIG - INT)
    text = LogText()


class EventHead(Message):
    """What every event has: its number within the lease, from 1 without holes, and its kind."""

    seq = Whole(min_value=1)
    kind = SnakeCase(max_length=32)


class BuildingIn(EventHead):
    pass


class StartingIn(EventHead):
    reason = Text(clip=64, **OPTIONAL)
    image_id = Text(clip=256, **OPTIONAL)


class RunningIn(EventHead):
    image_id = Text(clip=256, allow_null=True)
    gpus = serializers.ListField(child=Text(min_length=1, max_length=128, allow_blank=False), max_length=256)
    prefix = Text(clip=16, **OPTIONAL)


class HealthIn(EventHead):
    healthy = Flag()
    reason = Text(clip=64, **OPTIONAL)
    detail = Text(clip=1024, **OPTIONAL)


class DeliveringIn(EventHead):
    files = Whole(min_value=0, **OPTIONAL)
    bytes = Whole(min_value=0, max_value=2**63 - 1, **OPTIONAL)


class ExitedIn(EventHead):
    code = Whole(min_value=-INT, allow_null=True)
    oom_killed = Flag()
    detail = Text(clip=4096, **OPTIONAL)
    log_ends = LogOffsets(required=False)


class FailedIn(EventHead):
    reason = SnakeCase(max_length=64)
    detail = Text(clip=4096)


class DeclinedIn(EventHead):
    reason = Word(choices=["shutdown", "gpu_gone", "disk_floor", "needs_cuda", "paused"])
    detail = Text(clip=1024, **OPTIONAL)
    cuda = Text(clip=16, **OPTIONAL)


class StoppedIn(EventHead):
    pass


class SnapshotIn(EventHead):
    state = Word(choices=["leased", "building", "starting", "running", "stopping"])


EVENT_KINDS: dict[str, type[Message]] = {
    "building": BuildingIn,
    "starting": StartingIn,
    "running": RunningIn,
    "health": HealthIn,
    "delivering": DeliveringIn,
    "exited": ExitedIn,
    "failed": FailedIn,
    "declined": DeclinedIn,
    "stopped": StoppedIn,
    "snapshot": SnapshotIn,
}


class EventIn(EventHead):
    """One numbered event; the other fields depend on its kind.

    A kind that is not known here comes from a newer worker: it is taken without its fields, and recorded as ignored.
    """

    def to_internal_value(self, data: Any) -> reports.EventReport:
        head = super().to_internal_value(data)
        kind = EVENT_KINDS.get(head["kind"])
        # run_validation, not is_valid: its errors then carry the field's name into the list's errors.
        values = kind().run_validation(data) if kind else {}
        return reports.EventReport(head["seq"], head["kind"], {k: v for k, v in values.items() if k not in head})


class EventsIn(Message):
    shape = reports.Events
    session = Whole(min_value=1)
    lease = Id()
    events = listed(EventIn, at_most=1000)
    logs = listed(LogIn, at_most=1000)


class StopOut(Shared):
    reason = serializers.CharField(allow_null=True)
    grace_s = serializers.FloatField(allow_null=True)


class EventsOut(Shared):
    accepted_through = serializers.IntegerField()
    log_offsets = serializers.DictField(child=serializers.IntegerField())
    state = serializers.ChoiceField(choices=JOB_STATES)
    stop = StopOut(allow_null=True)
