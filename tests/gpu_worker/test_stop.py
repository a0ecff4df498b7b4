"""Stop pressed at any moment wins, and leaves nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.test_kill_and_restart import DOCKER, PROCESS, Kind
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]


@pytest.fixture(params=[PROCESS, pytest.param(DOCKER, marks=pytest.mark.docker)], ids=["process", "docker"])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def claimed(plane: ControlPlane, kind: Kind, files: dict[str, object]) -> Lease:
    revision = make_repository(plane.git_root, "space", files)  # type: ignore[arg-type]  # of str or bytes
    job = plane.queue_job("space", revision, **kind.claim)
    return eventually(lambda: plane.lease_of(job), what="the claim")


def assert_stopped(plane: ControlPlane, kind: Kind, lease: Lease) -> None:
    plane.stop_job(lease.claim["id"])
    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    assert kind.running(lease) == []


def test_right_after_the_claim(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    make_worker(executor=kind.executor).start()
    assert_stopped(plane, kind, claimed(plane, kind, kind.plain))


def test_during_the_build(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    make_worker(executor=kind.executor).start()
    lease = claimed(plane, kind, kind.slow_build)
    eventually(lambda: kind.slow_mark in lease.logs["build"], what="the slow step")

    assert_stopped(plane, kind, lease)
    assert lease.kinds() == ["building", "stopped"]


def test_during_the_start(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    make_worker(executor=kind.executor).start()
    lease = claimed(plane, kind, kind.slow_start)
    eventually(lambda: "warming up" in lease.logs["run"], what="the start")

    assert_stopped(plane, kind, lease)
    assert lease.kinds() == ["building", "starting", "stopped"]


def test_an_app_that_ignores_sigterm_is_killed_after_the_grace(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    make_worker(executor=kind.executor).start()
    lease = claimed(plane, kind, kind.deaf)
    eventually(lambda: lease.state == "running", what="running")

    assert_stopped(plane, kind, lease)


def test_a_start_right_after_a_stop_works(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    make_worker(executor=kind.executor).start()
    first = claimed(plane, kind, kind.plain)
    eventually(lambda: first.state == "running", what="running")

    plane.stop_job(first.claim["id"])
    again = plane.queue_job("space", first.claim["revision"], **kind.claim)

    eventually(lambda: plane.state(again) == "running", what="running again")
    eventually(lambda: first.cleared, what="clearing")
    assert kind.running(first) == []


def test_everything_the_app_started_ends_with_it(plane: ControlPlane, make_worker: Make) -> None:
    daemon = (
        "import os, subprocess, sys\n"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)\n"
    )
    make_worker().start()
    lease = claimed(plane, PROCESS, {"app.py": daemon + str(PROCESS.plain["app.py"])})
    eventually(lambda: lease.state == "running", what="running")
    assert len(PROCESS.running(lease)) == 3  # the shell that keeps the exit code, the app, its daemon

    assert_stopped(plane, PROCESS, lease)


def test_the_worker_can_be_told_twice_to_go_at_once(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = claimed(plane, PROCESS, PROCESS.deaf)
    eventually(lambda: lease.state == "running", what="running")
    plane.stop_job(lease.claim["id"], grace_s=60)
    eventually(lambda: "stopping" in lease.logs["system"], what="the stop")
    process = worker.process
    assert process is not None

    process.terminate()
    eventually(lambda: "running apps live on" in worker.log(), what="the first signal")
    process.terminate()

    assert worker.wait() == 1
