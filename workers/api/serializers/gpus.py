"""One GPU, as a worker tells of it with register, heartbeat and claim."""

from __future__ import annotations

from typing import Any

from workers import reports
from workers.api.fields import SMALL, Flag, Id, Memory, ShownNumber, ShownText, ShownWhole, Text
from workers.api.serializers.base import OPTIONAL, Message, listed


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
