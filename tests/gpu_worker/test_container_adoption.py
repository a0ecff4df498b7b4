"""A worker that comes back goes on with its own containers, and leaves everybody else's alone."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.engine_relay import EngineRelay
from tests.gpu_worker.images import container_files
from tests.gpu_worker.served import containers_of, running
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


def test_after_a_reboot_the_same_container_is_started_under_the_same_lease(
    plane: ControlPlane, make_worker: Make, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    [container] = containers_of(engine, lease.id)
    worker.kill()
    container.kill()
    worker.rewrite_journal(boot_id="the boot before")

    worker.start()

    assert [hold["state"] for hold in plane.registers[-1]["holds"]] == ["exited"], "it did not go on running"
    eventually(lambda: lease.moves()[3:] == ["starting", "running"], what="running again")
    assert lease.events[-2]["reason"] == "host_rebooted"
    assert [one.id for one in containers_of(engine, lease.id)] == [container.id]
    assert ask(worker, lease.id, "/index.html") == (200, b"hello from a container")


def test_a_container_without_its_journal_is_adopted_from_its_labels(
    plane: ControlPlane, make_worker: Make, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    before = [one.id for one in containers_of(engine, lease.id)]
    worker.kill()
    for entry in (worker.data_dir / "jobs").glob("*.json"):
        entry.unlink()

    worker.start()

    eventually(lambda: lease.kinds().count("running") == 2, what="the report")
    assert [one.id for one in containers_of(engine, lease.id)] == before
    assert ask(worker, lease.id, "/index.html")[0] == 200
    plane.stop_job(lease.claim["id"])
    eventually(lambda: lease.cleared, what="clearing")


def test_what_is_not_ours_is_not_touched(plane: ControlPlane, make_worker: Make, engine: Any) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    worker = make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    # a person looks into our image by hand: the container inherits the image's labels, and is still theirs
    theirs = engine.containers.run(lease.events[-1]["image_id"], detach=True, network_mode="none")
    try:
        worker.kill()
        worker.start()
        plane.stop_job(lease.claim["id"])
        eventually(lambda: lease.cleared, what="clearing")

        theirs.reload()
        assert theirs.status == "running"
    finally:
        theirs.remove(force=True)


def test_a_silent_engine_is_told_as_not_known_and_costs_nothing(
    plane: ControlPlane, make_worker: Make, tmp_path: Path, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    with EngineRelay(tmp_path / "engine.sock") as relay:
        worker = make_worker(executor="docker", DOCKER_HOST=f"unix://{relay.path}").start()
        lease = running(plane, "box", revision)

        relay.cut()
        eventually(lambda: plane.beats[-1]["holds"] is None, what="a heartbeat without a list")
        assert plane.beats[-1]["accepting"] is False
        assert ask(worker, lease.id, "/index.html")[0] == 200
        relay.mend()

        eventually(lambda: plane.beats[-1]["holds"], what="a heartbeat with a list")
        assert lease.moves() == ["building", "starting", "running"]
        assert len(containers_of(engine, lease.id)) == 1


def test_a_revoked_worker_forgets_itself_only_when_nothing_of_it_is_left(
    plane: ControlPlane, make_worker: Make, tmp_path: Path, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    with EngineRelay(tmp_path / "engine.sock") as relay:
        worker = make_worker(executor="docker", DOCKER_HOST=f"unix://{relay.path}").start()
        lease = running(plane, "box", revision)
        worker.kill()
        plane.revoked = True
        relay.cut()

        worker.spawn()
        eventually(lambda: "action=revoked" in worker.log(), what="the news")
        assert len(containers_of(engine, lease.id)) == 1
        assert (worker.data_dir / "credential.json").exists(), "without it nobody would know whose they are"
        relay.mend()

        assert worker.wait() == 78
        assert containers_of(engine, lease.id) == []
        assert not (worker.data_dir / "credential.json").exists()


def test_a_container_that_appears_without_the_worker_is_adopted_and_goes_the_way_of_its_lease(
    plane: ControlPlane, make_worker: Make, engine: Any
) -> None:
    revision = make_repository(plane.git_root, "box", container_files())
    make_worker(executor="docker").start()
    lease = running(plane, "box", revision)
    [ours] = containers_of(engine, lease.id)
    over = str(uuid.uuid4())
    labels = {name: text.replace(lease.id, over) for name, text in ours.labels.items()}

    # as a create whose answer was lost, or a restored snapshot of the engine, would leave it
    engine.containers.create(lease.events[-1]["image_id"], labels=labels, network_mode="none")

    eventually(lambda: over in str(plane.beats[-1]["holds"]), what="a heartbeat that lists it")
    plane.leases[over] = Lease({**lease.claim, "lease": over}, released=True)

    eventually(lambda: plane.leases[over].cleared, what="its removal")
    assert containers_of(engine, over) == []
    assert lease.moves() == ["building", "starting", "running"]
    assert len(containers_of(engine, lease.id)) == 1
