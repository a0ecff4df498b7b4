"""The demo runs Spaces in containers where it can, says so, and says why where it cannot."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from openface.demo import engine

FakeDocker = Callable[[str], None]


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDocker:
    """A `docker` that is a shell script, in front of everything else on the path."""

    def install(script: str) -> None:
        program = tmp_path / "docker"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")

    return install


def test_no_docker_means_processes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    chosen = engine.choose()

    assert chosen.executor == "process"
    assert "without any isolation, because there is no `docker` here" in chosen.sentence


def test_an_engine_that_does_not_answer_means_processes(docker: FakeDocker) -> None:
    docker("exit 1")

    chosen = engine.choose()

    assert not chosen.has_containers
    assert "no engine that answers" in chosen.sentence


def test_the_public_image_is_used_where_it_is_there(docker: FakeDocker) -> None:
    docker("exit 0")

    chosen = engine.choose()

    assert (chosen.executor, chosen.base_image) == ("docker", "python:3.11-slim")


def test_it_is_pulled_where_that_works(docker: FakeDocker) -> None:
    docker('case "$1" in image) exit 1;; *) exit 0;; esac')

    chosen = engine.choose()

    assert chosen.base_image == "python:3.11-slim"
    assert "was fetched" in chosen.sentence


needs_busybox = pytest.mark.skipif(
    not Path("/bin/busybox").exists(), reason="a stand-in's shell is Debian's busybox-static"
)


@needs_busybox
def test_a_stand_in_is_made_once_and_said(docker: FakeDocker, tmp_path: Path) -> None:
    docker(
        f"cd {tmp_path}\n"
        'case "$1" in\n'
        "  info) ;;\n"
        '  image) [ "$3" != python:3.11-slim ] && [ -e made ];;\n'
        "  import) cat > /dev/null; echo x >> made;;\n"
        "  *) exit 1;;\n"
        "esac"
    )

    first, second = engine.choose(), engine.choose()

    assert first == second
    assert first.executor == "docker"
    assert first.base_image.startswith("openface-local/python:3.")
    assert "cannot be pulled here" in first.sentence
    assert (tmp_path / "made").read_text() == "x\n"


@needs_busybox
def test_an_engine_without_any_base_image_is_not_used(docker: FakeDocker) -> None:
    docker('case "$1" in info) ;; import) cat > /dev/null; echo no room >&2; exit 1;; *) exit 1;; esac')

    chosen = engine.choose()

    assert chosen.executor == "process"
    assert "no room" in chosen.sentence
