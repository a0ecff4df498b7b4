"""The worker protocol v1 as serializers. The wire itself lives in `fixtures/protocol/v1/`; the tests hold this to it.

Requests become the plain values of `workers/reports.py`. Unknown fields are ignored, a missing optional field and null
both mean "not known". Free text for people is clipped, identities and numbers are refused when they are out of bounds;
of a GPU, only what it is called and whose it is: a reading of a driver in trouble is not known, and refuses nothing.
"""

from __future__ import annotations

from typing import Any, ClassVar

from django.utils.functional import cached_property
from rest_framework import serializers

from workers import reports
from workers.api.fields import (
    BIG,
    INT,
    SMALL,
    Flag,
    Id,
    LogText,
    Memory,
    ShownNumber,
    ShownText,
    ShownWhole,
    SnakeCase,
    Text,
    Whole,
    Word,
)
from workers.models import Worker

OPTIONAL: dict[str, Any] = {"required": False, "allow_null": True, "default": None}
KEY_MAX_LENGTH = 128  # of Idempotency-Key
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


class Shared(serializers.Serializer[Any]):
    """A serializer whose fields are made once per class.

    DRF copies them for every instance, at every level, which costs more than reading the message. Nothing here depends
    on the instance: no context, no partial updates.
    """

    _made: ClassVar[Any] = None

    @cached_property
    def fields(self) -> Any:
        cls = type(self)
        if "_made" not in cls.__dict__:
            cls._made = serializers.Serializer.fields.__get__(cls())  # of a bare one: it holds nobody's data
        return cls._made


class Message(Shared):
    """A message of the protocol. Unknown fields are ignored; a missing optional field and null mean: not known."""

    # What a valid message becomes: a class of `workers.reports`, called with the fields.
    shape: ClassVar[Any] = dict

    def to_internal_value(self, data: Any) -> Any:
        return self.shaped(super().to_internal_value(data))

    def shaped(self, values: dict[str, Any]) -> Any:
        return self.shape(**values)


def listed(serializer: type[serializers.Serializer[Any]], *, at_most: int, **kwargs: Any) -> Any:
    """A list of so many messages at most. `allow_null` is for the list: no message in it may be null."""
    return serializers.ListSerializer(child=serializer(), max_length=at_most, **kwargs)


# --- requests ------------------------------------------------------------------------------------------------------


class OursOnGpuIn(Message):
    shape = reports.OursOnGpu
    lease = Id()
    mib = Memory(**OPTIONAL)


class ForeignOnGpuIn(Message):
    shape = reports.ForeignOnGpu
    pid = ShownWhole(**OPTIONAL)
    name = ShownText(clip=256, **OPTIONAL)
    mib = Memory(**OPTIONAL)


class GpuIn(Message):
    shape = reports.GpuReport
    uuid = Text(min_length=1, max_length=128, allow_blank=False)
    index = ShownWhole(max_value=SMALL, **OPTIONAL)
    vendor = ShownText(clip=64, **OPTIONAL)
    model = ShownText(clip=128, **OPTIONAL)
    total_vram_mib = Memory(**OPTIONAL)
    free_vram_mib = Memory(**OPTIONAL)
    ours = listed(OursOnGpuIn, at_most=1000, **OPTIONAL)
    foreign = listed(ForeignOnGpuIn, at_most=1000, **OPTIONAL)
    utilization_pct = ShownNumber(min_value=0, max_value=100, **OPTIONAL)
    temperature_c = ShownNumber(min_value=-273.15, max_value=1000, **OPTIONAL)
    power_w = ShownNumber(min_value=0, max_value=1_000_000, **OPTIONAL)
    compute_capability = ShownText(clip=16, **OPTIONAL)
    mig = Flag(**OPTIONAL)
    healthy = Flag(**OPTIONAL)
    error = ShownText(clip=512, **OPTIONAL)
    simulated = Flag(required=False, default=False)

    def shaped(self, values: dict[str, Any]) -> Any:
        return super().shaped(values | {"ours": values["ours"] or [], "foreign": values["foreign"] or []})


class DiskIn(Message):
    docker_root_free_mib = Whole(max_value=BIG, **OPTIONAL)
    data_free_mib = Whole(max_value=BIG, **OPTIONAL)


class DockerIn(Message):
    available = Flag()
    version = Text(clip=64, **OPTIONAL)
    buildkit = Flag(**OPTIONAL)
    gpu_runtime = Flag(**OPTIONAL)
    error = Text(clip=1024, **OPTIONAL)


class MaxJobsIn(Message):
    gpu = Whole(max_value=SMALL)
    cpu = Whole(max_value=SMALL)


class CapabilitiesIn(Message):
    worker_id = Id()
    name = Text(clip=128, **OPTIONAL)
    os = Text(clip=128, **OPTIONAL)
    arch = Text(clip=32, **OPTIONAL)
    hostname = Text(clip=255, **OPTIONAL)
    machine_hint = Text(clip=128, **OPTIONAL)
    engine_id = Text(clip=128, **OPTIONAL)
    worker_version = Text(max_length=64)
    executor = Word(choices=["docker", "process"])
    docker = DockerIn(**OPTIONAL)
    driver_version = Text(clip=64, **OPTIONAL)
    cuda_version = Text(clip=64, **OPTIONAL)
    features = serializers.ListField(child=Text(max_length=64), max_length=64, required=False, default=list)
    max_jobs = MaxJobsIn()
    gpu_count = Whole(max_value=SMALL, **OPTIONAL)
    gpu_paused_reason = Text(clip=512, **OPTIONAL)
    disk = DiskIn(**OPTIONAL)

    def shaped(self, values: dict[str, Any]) -> reports.Capabilities:
        facts = {name: value for name, value in values.items() if value is not None and name != "worker_id"}
        return reports.Capabilities(
            worker_id=values["worker_id"],
            worker_version=values["worker_version"],
            executor=values["executor"],
            max_gpu_jobs=values["max_jobs"]["gpu"],
            max_cpu_jobs=values["max_jobs"]["cpu"],
            hostname=values["hostname"],
            engine_id=values["engine_id"],
            features=values["features"],
            gpu_count=values["gpu_count"],
            disk=values["disk"],
            facts=facts,
        )


class HoldIn(Message):
    shape = reports.HoldReport
    lease = Id()
    state = Word(choices=["leased", "building", "starting", "running", "stopping", "exited"])
    image_id = Text(clip=256, **OPTIONAL)
    container = Text(clip=128, **OPTIONAL)
    healthy = Flag(**OPTIONAL)
    kind = Word(choices=["cpu", "gpu"], **OPTIONAL)
    gpus = serializers.ListField(
        child=Text(min_length=1, max_length=128, allow_blank=False), max_length=256, **OPTIONAL
    )
    reason = Text(clip=512, **OPTIONAL)


class DoctorCheckIn(Message):
    shape = reports.DoctorCheck
    check = Text(max_length=64)
    ok = Flag(allow_null=True)
    detail = Text(clip=1024, **OPTIONAL)
    remedy = Text(clip=1024, **OPTIONAL)


class EnrollIn(Message):
    shape = reports.Enrollment
    token = Text(min_length=1, max_length=512, allow_blank=False)
    nonce = Text(min_length=16, max_length=128, allow_blank=False)
    hostname = Text(clip=255)
    version = Text(max_length=64)
    gateway_url = Text(max_length=2048, **OPTIONAL)


class RegisterIn(Message):
    shape = reports.Registration
    capabilities = CapabilitiesIn()
    gpus = listed(GpuIn, at_most=256)
    gateway_url = Text(max_length=2048, **OPTIONAL)
    holds = listed(HoldIn, at_most=1000, allow_null=True)
    doctor = listed(DoctorCheckIn, at_most=100, required=False, default=list)


class HeartbeatIn(Message):
    shape = reports.Heartbeat
    session = Whole(min_value=1)
    beat = Whole(min_value=1, max_value=BIG)
    accepting = Flag()
    paused_reason = Text(clip=512, **OPTIONAL)
    capabilities = CapabilitiesIn(**OPTIONAL)
    gpus = listed(GpuIn, at_most=256)
    disk = DiskIn(**OPTIONAL)
    holds = listed(HoldIn, at_most=1000, allow_null=True)
    doctor = listed(DoctorCheckIn, at_most=100, **OPTIONAL)


class SignOfLifeIn(Message):
    """What of a heartbeat proves life, however odd the rest of it is."""

    session = Whole(min_value=1)
    beat = Whole(min_value=1, max_value=BIG)


class FreeSlotsIn(Message):
    gpu = Whole(max_value=SMALL)
    cpu = Whole(max_value=SMALL)


class ClaimIn(Message):
    session = Whole(min_value=1)
    free_slots = FreeSlotsIn()
    gpus = listed(GpuIn, at_most=256)

    def shaped(self, values: dict[str, Any]) -> reports.ClaimRequest:
        slots = values["free_slots"]
        return reports.ClaimRequest(values["session"], slots["gpu"], slots["cpu"], values["gpus"])


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


class LeaseIn(Message):
    shape = reports.Renewal
    session = Whole(min_value=1)
    lease = Id()


class StandingIn(Message):
    """Why an operator does it; kept in the audit."""

    reason = Text(clip=255, required=False, default="")


# --- answers -------------------------------------------------------------------------------------------------------


class IntervalsOut(Shared):
    heartbeat_seconds = serializers.FloatField()
    lease_seconds = serializers.FloatField()
    stale_seconds = serializers.FloatField()
    poll_seconds = serializers.FloatField()


class EnrollOut(Shared):
    worker_id = serializers.UUIDField()
    name = serializers.CharField()
    credential = serializers.CharField()
    intervals = IntervalsOut()


class InstructionOut(Shared):
    """What to do with one lease. keep: go on. stop: end it. remove: clear what is left. hold: unknown here."""

    lease = serializers.UUIDField(source="lease_id")
    want = serializers.ChoiceField(choices=["keep", "stop", "remove", "hold"])
    reason = serializers.CharField(allow_null=True)
    grace_s = serializers.FloatField(allow_null=True)
    expires_in_s = serializers.FloatField(allow_null=True)
    next_seq = serializers.IntegerField(allow_null=True)
    log_offsets = serializers.DictField(child=serializers.IntegerField(), allow_null=True)
    runtime_token = serializers.CharField(allow_null=True)


class HeartbeatOut(Shared):
    intervals = IntervalsOut()
    standing = serializers.ChoiceField(choices=Worker.Scheduling.values)
    gateway = serializers.ChoiceField(choices=["ok", "refused", "timeout", "proposed"], allow_null=True)
    leases = InstructionOut(many=True)


class RegisterOut(HeartbeatOut):
    session = serializers.IntegerField()


class RequirementsOut(Shared):
    kind = serializers.ChoiceField(choices=["cpu", "gpu"])
    gpu_count = serializers.IntegerField()
    vram_mib = serializers.IntegerField(allow_null=True)
    exclusive = serializers.BooleanField()
    features = serializers.ListField(child=serializers.CharField())
    worker = serializers.CharField(allow_null=True)


class LimitsOut(Shared):
    """null: the worker's own default; for stop_after_disconnect_s: never; for run_timeout_s (batch): no limit."""

    memory_mib = serializers.IntegerField(allow_null=True, default=None)
    cpus = serializers.FloatField(allow_null=True, default=None)
    pids = serializers.IntegerField(allow_null=True, default=None)
    shm_mib = serializers.IntegerField(allow_null=True, default=None)
    build_timeout_s = serializers.FloatField(allow_null=True, default=None)
    run_timeout_s = serializers.FloatField(allow_null=True, default=None)
    stop_after_disconnect_s = serializers.FloatField(allow_null=True, default=None)


class ClaimOut(Shared):
    """A job under a lease, with all a worker needs to run it."""

    id = serializers.UUIDField()
    lease = serializers.UUIDField()
    attempt = serializers.IntegerField()
    kind = serializers.ChoiceField(choices=["cpu", "gpu"])
    mode = serializers.ChoiceField(choices=["service", "batch"])
    owner = serializers.CharField()
    repo = serializers.CharField()
    repository_id = serializers.CharField()
    revision = serializers.CharField()
    clone_url = serializers.CharField()
    source_token = serializers.CharField()
    runtime_token = serializers.CharField()
    base_path = serializers.CharField()
    port = serializers.IntegerField()
    requirements = RequirementsOut()
    gpus = serializers.ListField(child=serializers.CharField())
    environment = serializers.DictField(child=serializers.CharField())
    secrets = serializers.DictField(child=serializers.CharField())
    build_args = serializers.DictField(child=serializers.CharField())
    limits = LimitsOut()
    artifacts_url = serializers.CharField(allow_null=True)
    lease_expires_in_s = serializers.FloatField()
    sdk = serializers.ChoiceField(choices=["docker", "gradio", "streamlit", "static"], allow_null=True)
    app_file = serializers.CharField(allow_null=True)
    sdk_version = serializers.CharField(allow_null=True)
    python_version = serializers.CharField(allow_null=True)
    startup_timeout_s = serializers.FloatField(allow_null=True)


class StopOut(Shared):
    reason = serializers.CharField(allow_null=True)
    grace_s = serializers.FloatField(allow_null=True)


class EventsOut(Shared):
    accepted_through = serializers.IntegerField()
    log_offsets = serializers.DictField(child=serializers.IntegerField())
    state = serializers.ChoiceField(choices=JOB_STATES)
    stop = StopOut(allow_null=True)


class LeaseOut(Shared):
    expires_in_s = serializers.FloatField()


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
    drain = DrainOut(allow_null=True, default=None)


class ErrorOut(Shared):
    """The body of every answer of 400 and above. Codes are stable, sentences are not."""

    code = serializers.CharField()
    detail = serializers.CharField()
    # Only a description: nothing reads the property of that name that this hides.
    errors = serializers.DictField(  # type: ignore[assignment]
        child=serializers.ListField(child=serializers.CharField()), required=False
    )
    expected_seq = serializers.IntegerField(required=False)
    proof = serializers.CharField(required=False)
