"""`verify`: whether what a running worker promises is true, from end to end."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from gpu_worker.config import load
from gpu_worker.pause import Pause, PauseFile
from gpu_worker.verification import verify_live
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, eventually

Make = Callable[..., WorkerProcess]


def checks(worker: WorkerProcess) -> dict[str, Any]:
    return {check.check: check for check in verify_live(load(worker.environment))}


def verdicts(worker: WorkerProcess) -> dict[str, bool | None]:
    return {name: check.ok for name, check in checks(worker).items()}


GOOD = dict.fromkeys(("credential", "worker", "heartbeat", "takes_jobs", "gateway_here", "gateway"), True)


def test_a_worker_that_works_keeps_its_promises(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()

    eventually(lambda: verdicts(worker) == GOOD, what="all checks good")

    assert plane.session == 1, "the worker was not disturbed"


def test_a_worker_that_is_not_enrolled_or_not_running_is_told_so(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker()
    assert verdicts(worker) == {"credential": False}
    worker.start()
    worker.terminate()

    assert verdicts(worker) == {"credential": True, "worker": False}


def test_a_revoked_credential_is_seen(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    worker.terminate()
    plane.revoked = True

    assert verdicts(worker)["credential"] is False


def test_a_control_plane_that_does_not_answer_is_no_verdict_on_the_credential(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    eventually(lambda: verdicts(worker) == GOOD, what="all checks good")

    plane.outage.set()

    eventually(lambda: verdicts(worker)["heartbeat"] is False, what="the outage")
    assert verdicts(worker)["credential"] is None
    plane.outage.clear()


@pytest.mark.parametrize(
    ("seen", "remedy"), [("timeout", "firewall"), ("refused", "WORKER_PUBLIC_URL"), ("proposed", "operator")]
)
def test_a_closed_gateway_comes_with_its_remedy(plane: ControlPlane, make_worker: Make, seen: str, remedy: str) -> None:
    plane.gateway = seen
    worker = make_worker().start()

    gateway = eventually(lambda: (now := checks(worker).get("gateway")) and now.ok is False and now, what="the view")

    assert remedy in gateway.remedy


def test_somebody_else_at_our_address_is_found_out(plane: ControlPlane, make_worker: Make) -> None:
    first = make_worker().start()
    eventually(lambda: verdicts(first) == GOOD, what="all checks good")
    credential = first.data_dir / "credential.json"
    stored = credential.read_text()

    credential.write_text(re.sub(r"(ofw_\w{32}_).", r"\1_", stored))

    assert checks(first)["gateway_here"].ok is False


def test_the_owners_pause_is_no_fault_and_a_full_disk_is_one(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    eventually(lambda: verdicts(worker) == GOOD, what="all checks good")

    PauseFile(worker.data_dir).write(Pause(since=0.0, reason="rendering"))

    paused = eventually(lambda: (now := checks(worker)["takes_jobs"]).ok is None and now, what="the pause")
    assert "paused by the owner of this machine: rendering" in paused.detail

    worker.terminate()
    PauseFile(worker.data_dir).remove()
    worker = make_worker(DISK_FLOOR_MIB=str(1024**3)).start()

    short = eventually(lambda: (now := checks(worker).get("takes_jobs")) and now.ok is False and now, what="the floor")
    assert "below the floor" in short.detail
