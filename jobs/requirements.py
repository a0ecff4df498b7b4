"""Classes of needs, as rows and as plain data. Equal needs are one row, so that scheduling decides once per class."""

from __future__ import annotations

from jobs.models import Requirement
from jobs.scheduling import RequirementSpec


def requirement_row(spec: RequirementSpec) -> Requirement:
    """Return the one row for this class of needs; made on first use."""
    row, _ = Requirement.objects.get_or_create(
        kind=spec.kind,
        gpu_count=spec.gpu_count,
        vram_mib=spec.vram_mib,
        exclusive=spec.exclusive,
        features=sorted(set(spec.features)),
        worker_id=spec.worker_id,  # type: ignore[misc]  # a null key is a value here: "no worker was named"
    )
    return row


def spec_of(row: Requirement) -> RequirementSpec:
    """Return the class as plain data."""
    return RequirementSpec(
        kind="gpu" if row.kind == Requirement.Kind.GPU else "cpu",
        gpu_count=row.gpu_count,
        vram_mib=row.vram_mib,
        exclusive=row.exclusive,
        features=tuple(row.features),
        worker_id=row.worker_id,
    )
