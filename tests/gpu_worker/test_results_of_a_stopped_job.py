"""A stopped job's results are delivered too, but its stop does not wait for them without end."""

from __future__ import annotations

import threading
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpu_worker import artifacts
from gpu_worker.client import ControlPlane as Client
from gpu_worker.job import Job
from gpu_worker.journal import JobFacts, JobRecord, Journal
from gpu_worker.process_runtime import ProcessRuntime
from gpu_worker.wishes import HAND_BACK, LOST, STOP, Wish
from gpu_worker.workshop import Workshop
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import HANG_SECONDS, eventually


@pytest.fixture
def lease(plane: ControlPlane) -> Lease:
    """One that the control plane knows, with nothing delivered yet."""
    job, lease = str(uuid.uuid4()), str(uuid.uuid4())
    plane.leases[lease] = Lease({"id": job, "lease": lease})
    return plane.leases[lease]


@pytest.fixture
def job(plane: ControlPlane, lease: Lease, tmp_path: Path) -> Job:
    """An ended batch job with two results, as its runner hands it over."""
    run = tmp_path / "run"
    (run / "results").mkdir(parents=True)
    for name in ("a", "b"):
        (run / "results" / name).write_text(name)
    facts = JobFacts(
        job=lease.claim["id"], lease=lease.id, attempt=1, kind="cpu", mode="batch", owner="alice", repo="bench",
        repository_id="r", revision="0" * 40, port=7860, gpus=(),
        artifacts_url=f"{plane.url}/artifacts/{lease.claim['id']}",
    )  # fmt: skip
    shared: Any = SimpleNamespace(client=Client(plane.url), journal=Journal(tmp_path))
    job = Job(JobRecord(facts, phase="stopping"), cast(Workshop, shared), claim=None)
    job.runtime = ProcessRuntime("worker", run, facts)
    job.runtime_token = plane.runtime_token(lease.id)
    return job


def test_within_its_time_everything_is_delivered(plane: ControlPlane, lease: Lease, job: Job) -> None:
    job.wishes.make(Wish(STOP))

    artifacts.deliver_results(job)

    assert lease.results == {"a": b"a", "b": b"b"}


def test_after_its_time_the_rest_is_left_out_and_named(
    plane: ControlPlane, lease: Lease, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "STOPPED_SECONDS", 0.4)
    plane.results_taken = 1
    job.wishes.make(Wish(STOP))

    artifacts.deliver_results(job)

    [missing] = {"a", "b"} - lease.results.keys()
    assert lease.left_out == [{"path": missing, "size": 1, "reason": "stopped"}]


def test_an_owner_who_wants_the_machine_waits_for_seconds_only(
    plane: ControlPlane, lease: Lease, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also while the control plane is away: the job goes back to the line, where nothing of it is called missing."""
    monkeypatch.setattr(artifacts, "HANDED_BACK_SECONDS", 0.4)
    plane.results_taken = 0
    job.wishes.make(Wish(HAND_BACK))

    assert artifacts.deliver_results(job) is False

    assert (lease.results, lease.left_out) == ({}, [])


def test_what_arrives_before_the_owner_gets_the_machine_is_whole(plane: ControlPlane, lease: Lease, job: Job) -> None:
    job.wishes.make(Wish(HAND_BACK))

    assert artifacts.deliver_results(job) is True

    assert lease.results == {"a": b"a", "b": b"b"}


def test_without_its_lease_nothing_is_said_any_more(plane: ControlPlane, lease: Lease, job: Job) -> None:
    plane.results_taken = 0
    job.wishes.make(Wish(LOST))

    artifacts.deliver_results(job)

    assert (lease.results, lease.left_out) == ({}, [])


def test_a_new_token_is_used_as_soon_as_it_is_told(plane: ControlPlane, lease: Lease, job: Job) -> None:
    """A server that no longer has the key of the old one gives the lease another with its next answer."""
    newest = job.runtime_token
    job.runtime_token = "of a key that is gone"
    delivering = threading.Thread(target=artifacts.deliver_results, args=(job,))
    delivering.start()
    eventually(lambda: plane.artifact_calls, what="a refused look")

    job.runtime_token = newest
    delivering.join(HANG_SECONDS)

    assert lease.results == {"a": b"a", "b": b"b"}
