"""Who a worker is and what it has: enroll, register, heartbeat, and the one list of what it shall do."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from workers import reports
from workers.api.fields import BIG, SMALL, Flag, Id, Text, Whole, Word
from workers.api.serializers.base import OPTIONAL, Message, Shared, listed
from workers.api.serializers.gpus import GpuIn
from workers.models import Worker


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
    gpu_unopened_reason = Text(clip=512, **OPTIONAL)
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
    gateway_url = serializers.CharField(allow_null=True)
    gateway_detail = serializers.CharField(allow_null=True)
    leases = InstructionOut(many=True)


class RegisterOut(HeartbeatOut):
    session = serializers.IntegerField()
