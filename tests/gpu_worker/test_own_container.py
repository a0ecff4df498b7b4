"""A worker in a container finds its own by what the engine mounts into it, whatever host name it was given."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import docker
import pytest
import requests

from gpu_worker.containers.own_container import MOUNTS, names_of_mine, own_container
from gpu_worker.errors import EngineSilent
from tests.gpu_worker.containerised import ensure_image
from tests.gpu_worker.images import BUSYBOX

ID = "4cfc4f684356a9f19601750bc58346d9a0484776fc05ce1f267b25ef3062a85a"
LINE = "1015 1003 259:1 /var/lib/docker/containers/{id}/{file} /etc/{file} rw,relatime - ext4 /dev/root rw\n"


def test_the_id_stands_in_the_mounts_and_comes_before_the_host_name(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("".join(LINE.format(id=ID, file=file) for file in ("resolv.conf", "hostname", "hosts")))

    assert names_of_mine(mounts) == [ID, socket.gethostname()]


def test_where_no_mount_names_it_the_host_name_is_left(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text("23 28 0:21 / /proc rw,nosuid - proc proc rw\n")

    assert names_of_mine(mounts) == [socket.gethostname()]
    assert names_of_mine(tmp_path / "missing") == [socket.gethostname()]


@pytest.mark.docker
def test_a_container_whose_files_the_engine_hands_out_is_not_taken_for_our_own() -> None:
    """It mounts them where a worker on the host sees it, which may well have a stray /.dockerenv."""
    engine = docker.from_env()
    container = engine.containers.create(ensure_image(engine), ["/busybox", "true"], volumes=[f"{BUSYBOX}:/busybox:ro"])
    try:
        container.start()
        container.wait()
        pieces, _ = container.get_archive("/")
        mounts, names = MOUNTS.read_text(), names_of_mine()
        for _ in pieces:  # the engine lets go of the container
            pass

        assert str(container.id) in mounts, "or this engine does it in another way"
        assert names == [socket.gethostname()]
    finally:
        container.remove(force=True)
        engine.close()


def test_an_engine_that_does_not_answer_is_no_proof_of_being_on_the_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mark := tmp_path / ".dockerenv").touch()
    monkeypatch.setattr("gpu_worker.containers.own_container.MARK", mark)

    def late(name: str) -> NoReturn:
        raise requests.exceptions.ReadTimeout(f"{name} is looked for")

    engine: Any = SimpleNamespace(containers=SimpleNamespace(get=late))

    with pytest.raises(EngineSilent):
        own_container(engine)
