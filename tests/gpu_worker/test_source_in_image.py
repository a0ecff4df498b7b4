"""What a build takes from its source: files, and never what fetched them."""

from __future__ import annotations

import base64
import io
import tarfile
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest

from gpu_worker.containers import ContainerEngine
from gpu_worker.source import SourceFetcher
from tests.gpu_worker.conftest import remove_images
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.test_source import NEVER, claim_of
from tests.gpu_worker.worker import make_repository

pytestmark = pytest.mark.docker


@pytest.fixture
def worker_id() -> Iterator[str]:
    mine = str(uuid.uuid4())
    yield mine
    remove_images(mine)


def contents(client: Any, image_id: str) -> bytes:
    """The image as `docker save` writes it, layers and configuration."""
    return b"".join(client.images.get(image_id).save())


def names_in(saved: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(saved)) as outer:
        layers = [outer.extractfile(one) for one in outer.getmembers() if one.name.endswith("layer.tar")]
        return [name for layer in layers if layer for name in tarfile.open(fileobj=layer).getnames()]


def test_an_image_that_copies_everything_has_neither_git_s_data_nor_the_token(
    plane: ControlPlane, tmp_path: Path, worker_id: str
) -> None:
    files = {"Dockerfile": "FROM scratch\nCOPY . /everything\n", "app.py": "1", ".hidden": "2"}
    claim = claim_of(plane, "hello", make_repository(plane.git_root, "hello", files))
    log: list[bytes] = []
    SourceFetcher().fetch(claim, tmp_path / "source", output=log.append, cancel=NEVER)

    prepared = ContainerEngine(worker_id).prepare(
        claim, tmp_path / "source", output=log.append, cancel=threading.Event(), started=lambda child: None
    )

    client = docker.from_env()
    try:
        saved = contents(client, str(prepared.image_id))
        history = str(client.images.get(str(prepared.image_id)).history())
    finally:
        client.close()
    assert sorted(name for name in names_in(saved) if name.startswith("everything/")) == [
        "everything/.hidden",
        "everything/Dockerfile",
        "everything/app.py",
    ]
    for form in (claim.source_token, base64.b64encode(f"lease:{claim.source_token}".encode()).decode()):
        assert form.encode() not in saved
        assert form not in history
        assert form.encode() not in b"".join(log)
