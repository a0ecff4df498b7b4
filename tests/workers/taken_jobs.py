"""Jobs that a worker of the wire has brought so far, and what the fleet says of its drain."""

from __future__ import annotations

from typing import Any

from jobs.models import Job
from tests.factories import JobFactory, RequirementFactory
from tests.workers.conftest import WireWorker
from workers.inventory import Drain
from workers.models import Worker
from workers.overview import line_of

REPORTS = [{"seq": 1, "kind": "building"}, {"seq": 2, "kind": "starting"}]
RUNNING = {"seq": 3, "kind": "running", "image_id": None, "gpus": []}


def taken(worker: WireWorker, *, state: str = "running", kind: str = "gpu") -> tuple[Job, Any]:
    """A job that this worker has brought so far."""
    job = JobFactory.create(requirement=RequirementFactory.create(kind=kind, gpu_count=int(kind == "gpu")))
    claimed = worker.claim().json()
    reports = {"leased": [], "building": REPORTS[:1], "starting": REPORTS, "running": [*REPORTS, RUNNING]}[state]
    assert worker.events(claimed, reports).json()["state"] == state
    return job, claimed


def name_of(job: Job) -> str:
    return f"{job.owner}/{job.repo}"


def drain_of(worker: WireWorker) -> Drain:
    drain = line_of(worker.row)[0].drain
    assert drain is not None
    return drain


def state_of(job: Job) -> str:
    return Job.objects.get(pk=job.pk).state


def with_a_job(enroll: Any) -> tuple[WireWorker, Any]:
    """A local worker and the answer to its claim of one job."""
    worker = enroll("here", local=True, gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    JobFactory.create()
    return worker, worker.claim().json()
