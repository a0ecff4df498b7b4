"""A job under a lease: the claim, its answer, and the renewal of its lease."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers

from workers import reports
from workers.api.fields import SMALL, Id, Whole
from workers.api.serializers.base import Message, Shared, listed
from workers.api.serializers.gpus import GpuIn

KEY_MAX_LENGTH = 128  # of Idempotency-Key


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


class LeaseIn(Message):
    shape = reports.Renewal
    session = Whole(min_value=1)
    lease = Id()


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


class LeaseOut(Shared):
    expires_in_s = serializers.FloatField()
