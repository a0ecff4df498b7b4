"""kill -9 of the worker at each phase, and its next start: the same app goes on, or nothing is left; never two."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest

from gpu_worker.adoption import _wish_under_way
from gpu_worker.environment import LEASE_VARIABLE
from gpu_worker.journal import JobFacts, JobRecord, Journal
from gpu_worker.process_identity import all_pids, boot_id, environment_of
from gpu_worker.wishes import DEFAULT_GRACE_SECONDS
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]


@dataclass
class Kind:
    """One executor, with a Space for it and a way to see what runs."""

    executor: str
    plain: dict[str, Any]
    slow_build: dict[str, Any]
    slow_mark: str
    slow_start: dict[str, Any]
    deaf: dict[str, Any]
    claim: dict[str, Any]

    def running(self, lease: Lease) -> list[str]:
        """What runs for a lease: container ids, or the pids of the apps themselves."""
        if self.executor == "docker":
            engine = docker.from_env()
            try:
                found = engine.containers.list(filters={"label": f"openface.lease={lease.id}"})
                return [str(container.id) for container in found]
            finally:
                engine.close()
        marked = [pid for pid in all_pids() if environment_of(pid).get(LEASE_VARIABLE) == lease.id]
        return [str(pid) for pid in marked]


PROCESS = Kind(
    executor="process",
    plain={"app.py": WEB_APP},
    # a requirement that pip builds from the repository itself, slowly
    slow_build={
        "app.py": WEB_APP,
        "requirements.txt": "--no-index\n./slow",
        "slow/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n',
        "slow/slow.py": "import sys, time\nprint('waiting', file=sys.stderr, flush=True)\ntime.sleep(300)\n",
    },
    slow_mark="Processing ./slow",
    slow_start={"app.py": "import time\nprint('warming up', flush=True)\ntime.sleep(4)\n" + WEB_APP},
    deaf={"app.py": "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WEB_APP},
    claim={"app_file": "app.py"},
)
DOCKER = Kind(
    executor="docker",
    plain=container_files(),
    slow_build=container_files(
        Dockerfile=DOCKERFILE.replace("EXPOSE 7860", 'RUN ["sh", "-c", "echo waiting; sleep 300"]')
    ),
    slow_mark="waiting",
    slow_start=container_files(Dockerfile=DOCKERFILE.replace("echo serving; exec", "echo warming up; sleep 4; exec")),
    deaf=container_files(Dockerfile=DOCKERFILE.replace("echo serving; exec", "trap '' TERM; ")),
    claim={},
)


@pytest.fixture(params=[PROCESS, pytest.param(DOCKER, marks=pytest.mark.docker)], ids=["process", "docker"])
def kind(request: pytest.FixtureRequest) -> Kind:
    chosen: Kind = request.param
    return chosen


def claimed(plane: ControlPlane, worker: WorkerProcess, kind: Kind, files: dict[str, Any], **changes: Any) -> Lease:
    revision = make_repository(plane.git_root, "space", files)
    job = plane.queue_job("space", revision, **kind.claim, **changes)
    return eventually(lambda: plane.lease_of(job), what="the claim")


def test_a_running_app_is_adopted_and_goes_on(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.plain)
    eventually(lambda: lease.state == "running", what="running")
    before = kind.running(lease)

    worker.kill()
    assert kind.running(lease) == before
    worker.start()

    eventually(lambda: ask(worker, lease.id)[0] == 200, what="the way through the gateway")
    assert kind.running(lease) == before
    assert lease.state == "running"
    assert not lease.released
    held = plane.registers[-1]["holds"]
    assert [hold["lease"] for hold in held] == [lease.id]
    assert plane.queue == []


def test_an_adopted_app_serves_while_the_control_plane_is_away(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.plain)
    eventually(lambda: lease.state == "running", what="running")
    worker.kill()
    plane.outage.set()

    worker.spawn()

    eventually(lambda: reachable(worker, lease), what="the way through the gateway")
    sessions = plane.session
    plane.outage.clear()
    eventually(lambda: plane.session > sessions, what="register")
    plane.stop_job(lease.claim["id"])
    eventually(lambda: lease.cleared, what="clearing")
    assert kind.running(lease) == []


def reachable(worker: WorkerProcess, lease: Lease) -> bool:
    try:
        return ask(worker, lease.id)[0] == 200
    except OSError:
        return False


def test_an_adopted_app_can_be_stopped(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.plain)
    eventually(lambda: lease.state == "running", what="running")
    worker.kill()
    worker.start()

    plane.stop_job(lease.claim["id"])

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    assert kind.running(lease) == []


def test_a_stop_while_the_worker_is_away_is_done_on_its_return(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.plain)
    eventually(lambda: lease.state == "running", what="running")
    worker.kill()
    lease.released, lease.state = True, "completed"

    worker.start()

    eventually(lambda: lease.cleared, what="clearing")
    assert kind.running(lease) == []
    assert worker.journal() == []


def test_a_build_that_died_with_the_worker_is_queued_again(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.slow_build)
    eventually(lambda: kind.slow_mark in lease.logs["build"], what="the slow step")
    child = worker.journal()[0]["child"]["pid"]

    worker.kill()
    worker.start()

    assert plane.registers[-1]["holds"] == []
    assert lease.cleared
    eventually(lambda: not environment_of(child), what="the end of the build")
    again = eventually(lambda: [one for one in plane.leases.values() if one is not lease], what="another claim")[0]
    assert again.claim["attempt"] == 2
    plane.stop_job(again.claim["id"])
    eventually(lambda: again.cleared, what="clearing")


def test_an_app_that_was_starting_becomes_ready_under_the_next_worker(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.slow_start)
    eventually(lambda: "warming up" in lease.logs["run"], what="the start")
    before = kind.running(lease)

    worker.kill()
    worker.start()

    eventually(lambda: lease.state == "running", what="running")
    assert kind.running(lease) == before
    assert lease.moves() == ["building", "starting", "running"]


def test_a_stop_cut_by_a_kill_is_finished(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.deaf)
    eventually(lambda: lease.state == "running", what="running")
    plane.stop_job(lease.claim["id"], grace_s=3)
    eventually(lambda: worker.journal()[0]["phase"] == "stopping", what="the stop")

    worker.kill()
    worker.start()

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    assert kind.running(lease) == []


def test_a_stop_cut_by_a_kill_goes_on_before_the_control_plane_answers(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = claimed(plane, worker, PROCESS, PROCESS.deaf)
    eventually(lambda: lease.state == "running", what="running")
    plane.stop_job(lease.claim["id"], grace_s=1)
    eventually(lambda: worker.journal()[0]["phase"] == "stopping", what="the stop")
    worker.kill()
    plane.outage.set()

    worker.spawn()

    eventually(lambda: PROCESS.running(lease) == [], what="the end of the app")
    plane.outage.clear()
    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"


def test_the_grace_of_a_stop_goes_on_over_a_restart(tmp_path: Path) -> None:
    def left(record: JobRecord) -> float:
        return _wish_under_way(record).grace_seconds

    facts = JobFacts(
        job="j", lease="l", attempt=1, kind="cpu", mode="service", owner="a", repo="r", repository_id="1",
        revision="0" * 40, port=7860, gpus=(),
    )  # fmt: skip
    now = time.monotonic()
    asked = JobRecord(facts, phase="stopping", boot_id=boot_id(), ending=("stop", "why"), kill_at=now + 500)
    journal = Journal(tmp_path)
    journal.save(asked)
    [found] = journal.load_all()

    assert 400 < left(found) <= 500
    assert left(JobRecord(facts, boot_id=boot_id(), ending=("hand_back", None), kill_at=now - 5)) == 0
    assert left(JobRecord(facts, boot_id="another", kill_at=now + 500)) == DEFAULT_GRACE_SECONDS
    assert left(JobRecord(facts, boot_id=boot_id())) == DEFAULT_GRACE_SECONDS, "of an older worker"


def test_an_app_that_ended_while_the_worker_was_away_is_reported(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = claimed(plane, worker, kind, kind.plain)
    eventually(lambda: lease.state == "running", what="running")
    worker.kill()
    end_app(kind, lease)

    worker.start()

    eventually(lambda: lease.state == "failed", what="the report")
    assert lease.kinds()[-1] in ("exited", "failed")
    eventually(lambda: lease.cleared, what="clearing")


def end_app(kind: Kind, lease: Lease) -> None:
    import os
    import signal

    if kind.executor == "docker":
        engine = docker.from_env()
        for found in kind.running(lease):
            engine.containers.get(found).kill()
        engine.close()
    else:
        for pid in kind.running(lease):
            os.kill(int(pid), signal.SIGKILL)
    eventually(lambda: not kind.running(lease), what="the end of the app")


def test_logs_are_whole_after_kills(plane: ControlPlane, make_worker: Make) -> None:
    lines = 400
    counting = (  # one write a line: unbuffered, print makes several, and others of the app write too
        "import os, threading, time\n"
        "def count():\n"
        f"    for n in range({lines}):\n"
        "        os.write(1, f'line {n} ü\\n'.encode()); time.sleep(0.01)\n"
        "threading.Thread(target=count).start()\n"
    )
    revision = make_repository(plane.git_root, "talker", {"app.py": counting + WEB_APP})
    worker = make_worker().start()
    job = plane.queue_job("talker", revision, app_file="app.py")
    lease = eventually(lambda: plane.lease_of(job), what="the claim")

    for enough in (lines // 5, lines // 2):
        mark = f"line {enough} "
        eventually(lambda mark=mark: mark in lease.logs["run"], what="some log")  # type: ignore[misc]  # bound now
        worker.kill()
        worker.start()

    eventually(lambda: f"line {lines - 1} " in lease.logs["run"], what="the last line")
    told = [line for line in lease.logs["run"].splitlines() if line.startswith("line")]
    assert told == [f"line {n} ü" for n in range(lines)]


def test_sigterm_leaves_running_apps_alone_and_gives_builds_back(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    worker = make_worker(executor=kind.executor).start()
    serving = claimed(plane, worker, kind, kind.plain)
    eventually(lambda: serving.state == "running", what="running")
    revision = make_repository(plane.git_root, "slow", kind.slow_build)
    job = plane.queue_job("slow", revision, **kind.claim)
    building = eventually(lambda: plane.lease_of(job), what="the claim")
    eventually(lambda: kind.slow_mark in building.logs["build"], what="the slow step")
    before = kind.running(serving)

    assert worker.terminate() == 0

    assert kind.running(serving) == before
    assert serving.moves()[-1] == "running"
    assert building.events[-1]["kind"] == "declined"
    assert building.events[-1]["reason"] == "shutdown"
