"""Results of a batch job as the data plane delivers them, and where they lie."""

from __future__ import annotations

import hashlib
import uuid
from datetime import timedelta
from pathlib import Path

from django.utils import timezone

from jobs import artifact_store, artifacts
from jobs.artifact_store import Incoming
from jobs.models import Artifact, Job, Lease
from tests.factories import WorkerFactory


def lease_of(job: Job, *, attempt: int = 1) -> Lease:
    return Lease.objects.create(
        job=job,
        worker=WorkerFactory.create(),
        attempt=attempt,
        session=1,
        idempotency_key=str(uuid.uuid4()),
        key_id="k1",
        expires_at=timezone.now() + timedelta(hours=1),
    )


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def deliver(lease: Lease, path: str, content: bytes, *, sha256: str = "") -> Artifact | None:
    """As the data plane does it; None where it is here already."""
    sha256 = sha256 or digest(content)
    if not artifacts.expect(lease, path, size=len(content), sha256=sha256):
        return None
    incoming = Incoming()
    try:
        incoming.write(content)
        return artifacts.keep(lease, path, incoming, sha256=sha256)
    finally:
        incoming.discard()


def on_disk() -> list[Path]:
    return [file for file in artifact_store.directory().rglob("*") if file.is_file()]
