"""An app that fills the disk is stopped and told; neighbours, and whatever is not an app of ours, stay as they are."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpu_worker import disk_guard
from gpu_worker.config import load
from gpu_worker.disk import GIB, MIB, DiskFloor
from gpu_worker.disk_guard import DiskGuard
from gpu_worker.errors import JobFailed
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.engines import OwnEngine, small_engine
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
SERVE = "exec busybox httpd -f -v -p 0.0.0.0:7860 -h /www"


# --- who is stopped --------------------------------------------------------------------------------------------------


@dataclass
class App:
    lease: str
    has_app: bool = True
    failures: list[JobFailed] = field(default_factory=list)

    def condemn(self, failure: JobFailed) -> None:
        self.failures.append(failure)


class Machine:
    """A disk of which only the numbers are there: 10 GiB are to stay free, and a quarter of that is the reserve."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *apps: App, limit_gib: int | None = None) -> None:
        self.free, self.sizes, self.measured = 100 * GIB, {app.lease: 0 for app in apps}, 0
        monkeypatch.setattr(disk_guard, "_free", lambda path: self.free)
        floor = DiskFloor(10 * 1024)
        self.guard = DiskGuard(floor, lambda: Path("/"), self._usage, lambda: apps, limit_gib=limit_gib)

    def _usage(self) -> dict[str, int]:
        self.measured += 1
        return dict(self.sizes)

    def write(self, lease: str | None, gib: int) -> None:
        """An app, or (None) somebody else, writes so much; the guard looks at each GiB."""
        for _ in range(gib):
            self.free -= GIB
            if lease is not None:
                self.sizes[lease] += GIB
            self.guard.look()


def test_who_has_just_filled_the_disk_is_stopped_and_not_who_has_most_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    large, greedy = App("large"), App("greedy")
    machine = Machine(monkeypatch, large, greedy)
    machine.sizes["large"] = 500 * GIB
    machine.guard.look()

    machine.write("greedy", 97)
    assert (large.failures, greedy.failures) == ([], []), "3 GiB are left"
    machine.write("greedy", 1)

    assert large.failures == []
    [failure] = greedy.failures
    assert failure.reason == "disk_limit"
    assert failure.detail.startswith("Only 2.0 GiB of disk were left on the worker (it keeps 2.5 GiB)")
    assert "is still there: 98.0 GiB" in failure.detail


def test_where_somebody_else_fills_the_disk_no_app_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    app = App("app")
    machine = Machine(monkeypatch, app)
    machine.guard.look()
    machine.sizes["app"] = 20 * MIB  # it goes on with its work

    machine.write(None, 99)

    assert app.failures == []


def test_an_app_that_was_never_measured_is_not_blamed_for_what_it_brought_along(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = App("app", has_app=False)
    machine = Machine(monkeypatch, app)
    machine.sizes["app"] = 50 * GIB
    machine.write(None, 98)
    app.has_app = True

    machine.guard.look()

    assert app.failures == []


def test_apps_are_measured_when_they_are_new_and_when_the_disk_has_lost_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    machine = Machine(monkeypatch, App("app"))
    for _ in range(50):
        machine.guard.look()
    assert machine.measured == 1

    machine.free -= 400 * MIB
    machine.guard.look()
    assert machine.measured == 1
    machine.free -= 400 * MIB
    machine.guard.look()
    assert machine.measured == 2


def test_a_space_above_the_limit_of_its_own_is_stopped_and_told_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    app, other = App("app"), App("other")
    machine = Machine(monkeypatch, app, other, limit_gib=4)

    machine.write("app", 4)
    assert app.failures == []
    machine.write("app", 1)

    assert [failure.detail for failure in app.failures] == [
        "It has 5.0 GiB in /data, /cache and its container; a Space may have 4.0 GiB on this worker."
    ]
    assert other.failures == []


def test_the_limit_of_a_space_is_a_setting_that_is_off_unless_it_is_set() -> None:
    url = {"OPENFACE_URL": "http://openface.lan:8090"}

    assert load(url).max_space_data_gib is None
    assert load({**url, "MAX_SPACE_DATA_GIB": "20"}).max_space_data_gib == 20


# --- with a real engine and worker ------------------------------------------------------------------------------------


@pytest.fixture
def engine() -> Iterator[OwnEngine]:
    """Its disk has 640 MiB, of which the worker keeps 512."""
    with small_engine(mib=640) as engine:
        yield engine


@pytest.fixture
def small_machine(engine: OwnEngine, make_worker: Make, monkeypatch: pytest.MonkeyPatch) -> WorkerProcess:
    monkeypatch.setenv("DOCKER_HOST", engine.host)  # for what clears away after the test
    return make_worker(executor="docker", DOCKER_HOST=engine.host, DISK_FLOOR_MIB="0").start()


def running(plane: ControlPlane, name: str, command: str) -> Lease:
    dockerfile = DOCKERFILE.replace(f"echo serving; {SERVE}", command)
    revision = make_repository(plane.git_root, name, container_files(Dockerfile=dockerfile))
    job = plane.queue_job(name, revision)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


@pytest.mark.docker
@pytest.mark.parametrize("place", ["/data", "/tmp"])
def test_an_app_that_fills_the_disk_is_stopped_and_its_data_stay(
    plane: ControlPlane, small_machine: WorkerProcess, place: str
) -> None:
    neighbour = running(plane, "neighbour", f"head -c 90000000 /dev/zero > /data/mine; {SERVE}")
    fill = f"mkdir -p {place}; sleep 2; dd if=/dev/zero of={place}/big bs=1M count=100"

    greedy = running(plane, "greedy", f"({fill}) & {SERVE}")

    eventually(lambda: greedy.kinds()[-1] == "failed", what="the end of the greedy app")
    failure = greedy.events[-1]
    assert failure["reason"] == "disk_limit"
    assert "this app had just written" in failure["detail"]
    assert neighbour.kinds() == ["building", "starting", "running"]
    assert small_machine.process is not None
    assert small_machine.process.poll() is None
    volumes = subprocess.run(
        ["docker", "volume", "ls", "-q"], capture_output=True, text=True, check=True
    ).stdout.split()
    assert len([name for name in volumes if name.endswith("-data")]) == 2, "nobody's /data is removed"
