"""kill -9 of the worker at named points and at any moment of a job's life, and what must hold after its next start.

    python -m tests.gpu_worker.kills --rounds 100

Each round queues a job of a new commit, kills the worker, starts it again, and looks: the job runs, once; the engine
has exactly its container and network, the worker's data directory exactly its journal; then it is stopped, and nothing
is left. What ran already when the worker died is the very same container. Real worker and engine, simulated server.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import docker

from tests.gpu_worker.conftest import ask, clear_away
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.engine_relay import EngineRelay
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

LONGEST_LIFE_SECONDS = 2.0  # from the queue to running
BEGUN = "container created"  # from this point on the same container goes on


@dataclass(frozen=True)
class Point:
    """Where in a job's life: the request to the engine that comes next, or has just been *answered*."""

    name: str
    request: str
    answered: bool = False


POINTS = (
    Point("cloned", r"POST /session"),
    Point("building", r"POST \S*/build", answered=True),
    Point("image built", r"POST \S*/networks/create"),
    Point(BEGUN, r"POST \S*/containers/create", answered=True),
    Point("started", r"POST \S*/containers/\w+/start", answered=True),
)


class Rounds:
    """One control plane, one engine and one worker that dies again and again."""

    def __init__(self, directory: Path) -> None:
        self._plane = ControlPlane(directory / "git")
        self._relay = EngineRelay(directory / "engine.sock")
        self._engine: Any = docker.from_env()
        (directory / "worker").mkdir()
        settings = {"DOCKER_HOST": f"unix://{self._relay.path}"}
        self._worker = WorkerProcess(self._plane, directory / "worker", executor="docker", settings=settings)
        self._count = 0

    def __enter__(self) -> Self:
        self._plane.start()
        self._relay.__enter__()
        self._worker.start()
        return self

    def __exit__(self, *_: object) -> None:
        clear_away(self._worker)
        self._relay.__exit__()
        self._plane.stop()
        self._engine.close()

    # -- the ways to die ---------------------------------------------------------------------------------------

    def at(self, point: Point) -> None:
        """Die at a named point."""
        job = self._round(lambda: self._relay.trap(point.request, self._worker.kill, answered=point.answered))
        names = [one.name for one in POINTS]
        self._assert_goes_on(job, same=names.index(point.name) >= names.index(BEGUN))

    def while_running(self) -> None:
        job = self._round(lambda: None)
        eventually(lambda: self._plane.state(job) == "running", what="running")
        [before] = self._containers()
        self._worker.kill()
        self._assert_goes_on(job, same=True, container=before)

    def after(self, *moments: float) -> None:
        """Die at any moment; with several, again so many seconds after each next start."""
        job = self._round(lambda: None)
        for place, seconds in enumerate(moments):
            if place:
                self._worker.start()
            time.sleep(seconds)
            self._worker.kill()
        self._assert_goes_on(job, same=False)

    def _round(self, prepare: Callable[[], None]) -> str:
        """Queue a job of a commit that was never built; its id."""
        self._count += 1
        prepare()
        page = {"index.html": f"round {self._count}", "Dockerfile": DOCKERFILE}
        revision = make_repository(self._plane.git_root, "space", container_files(**page))
        return self._plane.queue_job("space", revision)

    # -- what must hold ----------------------------------------------------------------------------------------

    def _assert_goes_on(self, job: str, *, same: bool, container: str | None = None) -> None:
        """After the next start the job runs, once, and can be stopped without a trace.

        *same*: under its first lease; *container*: and in this very one.
        """
        process = self._worker.process
        assert process is not None
        eventually(lambda: process.poll() is not None, what="the kill")
        first = self._plane.lease_of(job)
        self._worker.start()

        eventually(lambda: self._plane.state(job) in ("running", "failed"), what="running")
        lease = self._plane.lease_of(job)
        assert lease is not None
        assert lease.state == "running", (lease.events, lease.logs)
        if same:
            assert first is not None and lease.id == first.id, "built anew although its container was there"
        eventually(lambda: ask(self._worker, lease.id)[0] == 200, what="the way through the gateway")
        page = ask(self._worker, lease.id, "/index.html")[1]
        assert page == f"round {self._count}".encode()
        self._assert_only(lease)
        if container is not None:
            assert self._containers() == [container]

        self._plane.stop_job(job)
        eventually(lambda: lease.cleared, what="clearing")
        assert self._containers() == [] and self._networks() == []
        assert self._worker.journal() == []
        assert self._plane.wire_faults == []

    def _assert_only(self, lease: Lease) -> None:
        """Engine, worker and server agree that there is this lease, and nothing else."""
        [container] = self._engine.containers.list(all=True, filters={"label": self._mark})
        assert container.labels["openface.lease"] == lease.id
        assert self._networks() == [container.name]
        assert [entry["facts"]["lease"] for entry in self._worker.journal()] == [lease.id]
        assert [one.id for one in self._plane.leases.values() if not one.cleared] == [lease.id]
        assert not any((self._worker.data_dir / "work").glob("*")), "a working directory is left"

    @property
    def _mark(self) -> str:
        return f"openface.worker={self._plane.worker_id}"

    def _containers(self) -> list[str]:
        return [str(one.id) for one in self._engine.containers.list(all=True, filters={"label": self._mark})]

    def _networks(self) -> list[str]:
        return [str(one.name) for one in self._engine.networks.list(filters={"label": self._mark})]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=100, help="how many kills (100)")
    parser.add_argument("--seed", type=int, default=None, help="the same moments again")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.randrange(10**6)
    chance = random.Random(seed)
    print(f"{arguments.rounds} kills, seed {seed}", flush=True)
    with tempfile.TemporaryDirectory() as directory, Rounds(Path(directory)) as rounds:
        ways: list[tuple[str, Callable[[], None]]] = [(one.name, partial(rounds.at, one)) for one in POINTS]
        ways.append(("running", rounds.while_running))
        for number in range(1, arguments.rounds + 1):
            seconds = chance.uniform(0, LONGEST_LIFE_SECONDS)
            any_moment: tuple[str, Callable[[], None]] = (f"after {seconds:.2f} s", partial(rounds.after, seconds))
            name, die = chance.choice([*ways, any_moment])
            print(f"{number:4}  {name}", flush=True)
            die()
    print("engine, worker and server agreed each time")


if __name__ == "__main__":
    main()
