"""What a Space writes to /data and /cache: writable for any user, kept for the next start, never anybody else's."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest

from gpu_worker.containers.connection import Connection
from gpu_worker.containers.volumes import SpaceVolumes
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]

NOTES_WHAT_IT_FINDS = "echo found: $(ls /data); mkdir -p $HF_HOME && touch /data/by-$(id -u) && echo wrote in $HF_HOME"


def says(command: str, *, user: str = "0:0", build: str = "") -> str:
    """The Dockerfile of a batch job that runs *command* as *user* and ends."""
    before, _, _ = DOCKERFILE.partition("EXPOSE 7860")
    # what a build step needs to be its own: the engine's cache would answer with another's
    return f'{before}{build}\nUSER {user}\nCMD ["sh", "-c", "{command}"]\n'


def ran(plane: ControlPlane, repo: str, dockerfile: str) -> Lease:
    """A finished batch job of the repository's newest commit."""
    revision = make_repository(plane.git_root, repo, container_files(Dockerfile=dockerfile))
    job = plane.queue_job(repo, revision, mode="batch")
    eventually(lambda: plane.state(job) in ("completed", "failed"), what="the end")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "completed", (lease.events, lease.logs)
    eventually(lambda: lease.cleared, what="clearing")
    return lease


def volumes_of(plane: ControlPlane) -> list[Any]:
    engine = Connection()()
    try:
        return list(engine.volumes.list(filters={"label": f"openface.worker={plane.worker_id}"}))
    finally:
        engine.close()


def test_what_a_space_writes_is_there_for_its_next_commit_whoever_it_runs_as(
    plane: ControlPlane, make_worker: Make
) -> None:
    make_worker(executor="docker").start()

    first = ran(plane, "keeper", says(NOTES_WHAT_IT_FINDS, user="1000"))
    second = ran(plane, "keeper", says(NOTES_WHAT_IT_FINDS, user="4321:4321"))
    other = ran(plane, "other", says(NOTES_WHAT_IT_FINDS, user="1000"))

    assert first.logs["run"] == "found:\nwrote in /cache/huggingface\n"
    assert second.logs["run"].startswith("found: by-1000\n"), "the first start's file"
    assert other.logs["run"].startswith("found:\n"), "another Space has its own"
    assert sorted(volume.attrs["Labels"]["openface.repository"] for volume in volumes_of(plane)) == [
        "r-keeper", "r-keeper", "r-other", "r-other",
    ]  # fmt: skip


def test_what_the_image_says_of_its_data_and_cache_holds(plane: ControlPlane, make_worker: Make) -> None:
    build = (
        'RUN ["sh", "-c", "mkdir /data && touch /data/brought && chown -R 4242 /data && chmod 700 /data"]\n'
        "ENV HF_HOME=/models"
    )
    make_worker(executor="docker").start()

    lease = ran(plane, "own", says("echo $(stat -c '%u %a' /data) $(ls /data) $HF_HOME", user="4242", build=build))

    assert lease.logs["run"] == "4242 700 brought /models\n"


def test_where_nothing_is_kept_an_app_can_still_write(plane: ControlPlane, make_worker: Make) -> None:
    make_worker(executor="docker", KEEP_SPACE_DATA="false").start()

    lease = ran(plane, "guest", says(NOTES_WHAT_IT_FINDS, user="1000"))

    assert "wrote in /cache/huggingface\n" in lease.logs["run"]
    assert volumes_of(plane) == []


def test_removing_a_workers_volumes_touches_no_other() -> None:
    engine = Connection()
    ours, theirs = str(uuid.uuid4()), str(uuid.uuid4())
    labels = {"openface.worker": ours, "openface.repository": "42", "openface.role": "data"}
    for name, marks in {
        f"test-{ours}-data": labels,
        f"test-{ours}-not-a-spaces": {**labels, "openface.role": "journal"},
        f"test-{theirs}-data": {**labels, "openface.worker": theirs},
    }.items():
        engine().volumes.create(name, labels=marks)
    volumes = SpaceVolumes(engine, ours, kept=True)
    try:
        assert [(one.repository, one.role) for one in volumes.all()] == [("42", "data")]

        assert volumes.remove_all() == 1

        left = [volume.name for volume in engine().volumes.list() if volume.name.startswith("test-")]
        assert {f"test-{ours}-not-a-spaces", f"test-{theirs}-data"} <= set(left)
        assert f"test-{ours}-data" not in left
    finally:
        for volume in engine().volumes.list(filters={"label": "openface.repository=42"}):
            if ours in volume.name or theirs in volume.name:
                volume.remove()
        engine().close()
