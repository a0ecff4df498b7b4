"""`status` says why a worker is not in touch, also where this process has never been."""

from __future__ import annotations

from collections.abc import Callable

from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, eventually

Make = Callable[..., WorkerProcess]


def test_before_it_is_enrolled(plane: ControlPlane, make_worker: Make, command: Command) -> None:
    plane.outage.set()
    worker = make_worker()
    worker.spawn()

    status = eventually(lambda: (now := command(worker, "status"))["problem"] and now, what="the reason")

    assert (status["worker_id"], status["running"], status["answers"]) == (None, True, False)
    plane.outage.clear()
    eventually(lambda: command(worker, "status")["problem"] is None, what="an answer")


def test_before_it_is_registered(plane: ControlPlane, make_worker: Make, command: Command) -> None:
    worker = make_worker().start()
    eventually(lambda: command(worker, "status")["answers"], what="an answer")
    worker.terminate()
    plane.outage.set()
    worker.spawn()

    status = eventually(lambda: (now := command(worker, "status"))["problem"] and now, what="the reason")

    assert (status["running"], status["answers"]) == (True, False)
    assert status["worker_id"] is not None
    plane.outage.clear()
    eventually(lambda: command(worker, "status")["answers"], what="an answer")
