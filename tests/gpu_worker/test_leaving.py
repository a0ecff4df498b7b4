"""The owner gets the disk back: prune while the worker works, leave with everything that is its own."""

from __future__ import annotations

import io
import json
import tarfile
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from gpu_worker import cli_disk
from gpu_worker.__main__ import main
from gpu_worker.credentials import Credential, CredentialStore
from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


@pytest.fixture
def engine() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The app of these tests does not end by itself on SIGTERM."""
    monkeypatch.setattr(cli_disk, "LEAVE_GRACE_SECONDS", 0.2)


def serving(plane: ControlPlane) -> Lease:
    job = plane.queue_job("box", make_repository(plane.git_root, "box", container_files()))
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def test_leaving_takes_along_what_is_its_own_and_spaces_data_only_when_told(
    plane: ControlPlane, make_worker: Make, command: Command, engine: Any
) -> None:
    worker = make_worker(executor="docker").start()
    lease = serving(plane)
    image = lease.events[-1]["image_id"]
    own = {"label": f"openface.worker={plane.worker_id}"}
    pruned = command(worker, "prune", "--dry-run")
    assert [(one["id"], one["because"]) for one in pruned["kept"]] == [(image, "a container uses it")]
    command(worker, "leave", "--delete-data", code=2)  # it runs
    worker.terminate()

    command(worker, "leave", code=2)  # what Spaces have written would go, and nobody has said so

    assert not plane.revoked
    assert len(engine.containers.list(filters=own)) == 1

    answer = command(worker, "leave", "--delete-data")

    assert plane.revoked
    assert (answer["removed_apps"], answer["removed_images"], answer["removed_volumes"]) == (1, 1, 2)
    assert engine.containers.list(all=True, filters=own) == []
    assert engine.networks.list(filters=own) == []
    assert engine.volumes.list(filters=own) == []
    assert engine.images.list(filters=own) == []
    command(worker, "status")
    assert not (worker.data_dir / "credential.json").exists()
    again = command(worker, "leave")
    assert (again["removed_apps"], again["removed_images"], again["removed_volumes"]) == (0, 0, 0)


def test_data_that_is_kept_is_named(plane: ControlPlane, make_worker: Make, command: Command, engine: Any) -> None:
    worker = make_worker(executor="docker").start()
    worker.terminate()
    name = f"openface-tests-{plane.worker_id}"
    volume = engine.volumes.create(name, labels={"openface.worker": plane.worker_id, "openface.role": "data"})

    answer = command(worker, "leave", "--keep-data")

    assert answer["kept_volumes"] == [name]
    assert plane.revoked
    volume.remove()


@pytest.mark.parametrize("json_too", [False, True])
def test_people_are_told_how_far_it_is_and_programs_get_one_object(
    engine: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], json_too: bool
) -> None:
    credential = Credential(f"ofw_{uuid.uuid4().hex}_{'b' * 43}", "gpu1")
    store = CredentialStore(tmp_path)
    store.save(credential, token="used")
    store.wipe(reason="This worker was revoked.")
    labels = f"LABEL openface.worker={credential.worker_id} openface.role=image openface.repository=7"
    for tag in ("one", "two"):
        engine.api.import_image_from_data(
            empty_tar(tag), repository="openface/t-leave", tag=f"{tag}-{credential.worker_id[:8]}", changes=[labels]
        )

    words = ["leave", "--data-dir", str(tmp_path), "--url", "http://127.0.0.1:9"]
    assert main([*words, "--json"] if json_too else words) == 0

    said = capsys.readouterr()
    assert ("removed 1 of 2 images\nremoved 2 of 2 images\n" in said.err) is not json_too
    if json_too:
        assert json.loads(said.out)["removed_images"] == 2
        assert "of 2 images" not in said.err
    assert engine.images.list(filters={"label": f"openface.worker={credential.worker_id}"}) == []


def empty_tar(name: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        tar.addfile(tarfile.TarInfo(name))
    return made.getvalue()
