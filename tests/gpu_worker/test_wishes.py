"""Several wishes for one job: the first one says how it ends, and a shutdown is heard beside every one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_worker.errors import EngineSilent
from gpu_worker.job import Detached, Job
from gpu_worker.journal import JobFacts, JobRecord, Journal
from gpu_worker.wishes import HAND_BACK, LOST, SHUTDOWN, STOP, Wish, Wishes
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.test_kill_and_restart import PROCESS, claimed
from tests.gpu_worker.worker import WorkerProcess, eventually

Make = Callable[..., WorkerProcess]

FACTS = JobFacts(
    job="job", lease="lease", attempt=1, kind="cpu", mode="service", owner="alice", repo="lab", repository_id="r",
    revision="0" * 40, port=7860, gpus=(),
)  # fmt: skip


def wished(*kinds: str) -> Wishes:
    wishes = Wishes()
    for kind in kinds:
        wishes.make(Wish(kind))
    return wishes


@pytest.mark.parametrize(
    ("kinds", "by", "shutting_down"),
    [
        ((STOP,), STOP, False),
        ((STOP, HAND_BACK), STOP, False),
        ((STOP, SHUTDOWN), STOP, True),
        ((HAND_BACK, SHUTDOWN), HAND_BACK, True),
        ((SHUTDOWN, STOP), SHUTDOWN, True),
        ((STOP, SHUTDOWN, LOST), LOST, True),
        ((LOST, STOP), LOST, False),
    ],
)
def test_the_first_wish_says_how_the_job_ends_and_a_shutdown_is_never_missed(
    kinds: tuple[str, ...], by: str, shutting_down: bool
) -> None:
    wishes = wished(*kinds)

    assert wishes.is_for(by)
    assert wishes.shutting_down is shutting_down


@pytest.mark.parametrize("first", [STOP, HAND_BACK])
def test_a_shutdown_ends_the_waiting_for_a_silent_engine_also_while_the_app_is_being_stopped(
    tmp_path: Path, first: str
) -> None:
    parts: Any = SimpleNamespace(client=None, journal=Journal(tmp_path))
    job = Job(JobRecord(FACTS), parts, None)
    job.wishes.make(Wish(first))
    tries = 0

    def silent() -> None:
        nonlocal tries
        tries += 1
        job.wishes.make(Wish(SHUTDOWN))
        assert tries < 3, "it went on asking"
        raise EngineSilent("no answer")

    with pytest.raises(Detached):
        job.patiently(silent, interruptible=False)


def test_an_end_that_a_shut_down_worker_could_not_tell_is_told_by_the_next(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = claimed(plane, worker, PROCESS, PROCESS.deaf)
    eventually(lambda: lease.state == "running", what="running")
    plane.stop_job(lease.claim["id"], grace_s=1)
    eventually(lambda: worker.journal()[0]["phase"] == "stopping", what="the stop")
    plane.outage.set()
    eventually(lambda: PROCESS.running(lease) == [], what="the end of the app")

    assert worker.terminate() == 0
    plane.outage.clear()
    worker.start()

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    eventually(lambda: worker.journal() == [], what="an empty journal")
