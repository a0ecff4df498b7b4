"""Jobs that run in containers of the real engine, and what the engine has of them."""

from __future__ import annotations

from typing import Any

from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import eventually


def containers_of(engine: Any, lease: str) -> list[Any]:
    return list(engine.containers.list(all=True, filters={"label": f"openface.lease={lease}"}))


def running(plane: ControlPlane, repo: str, revision: str, **changes: Any) -> Lease:
    job = plane.queue_job(repo, revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease
