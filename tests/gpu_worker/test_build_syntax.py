"""Dockerfiles that ask for more than this worker's BuildKit has: each has its sentence, and nothing is built half."""

from __future__ import annotations

from pathlib import Path

import docker
import pytest

from gpu_worker.errors import JobFailed
from gpu_worker.lent_images import Lender
from tests.gpu_worker.builds import Build, claim, write

pytestmark = pytest.mark.docker

HEREDOC = "FROM scratch\nRUN <<EOF\necho hello\nEOF\n"
COPIED_HEREDOC = "FROM scratch\nCOPY <<EOF /etc/app.conf\nuser app\nEOF\n"
LINK = "FROM scratch\nCOPY --link Dockerfile /\n"


@pytest.fixture
def old_buildkit() -> None:
    engine = docker.from_env()
    try:
        major = int(engine.version()["Version"].partition(".")[0])
    finally:
        engine.close()
    if major >= 23:
        pytest.skip("this engine's BuildKit knows them")


def failure_of(dockerfile: str, directory: Path, *, lent: str = "") -> JobFailed:
    lender = Lender(lambda name: None, [lent])
    build = Build(claim(), write(directory, {"Dockerfile": dockerfile}), lender=lender)
    with pytest.raises(JobFailed) as failure:
        build.run()
    return failure.value


def test_a_syntax_image_that_cannot_be_fetched_is_named(tmp_path: Path) -> None:
    dockerfile = "# syntax=registry.invalid/docker/dockerfile:1\nFROM scratch\nCOPY Dockerfile /\n"

    failure = failure_of(dockerfile, tmp_path, lent="registry.invalid/docker/*")

    assert failure.reason == "syntax_unavailable"
    assert failure.detail.startswith(
        "The Dockerfile's line # syntax= asks for the image registry.invalid/docker/dockerfile:1, "
        "which could not be fetched by this worker: "
    )
    assert failure.detail.endswith("Without that line the worker's own BuildKit reads it.")


@pytest.mark.usefixtures("old_buildkit")
@pytest.mark.parametrize("dockerfile", [HEREDOC, COPIED_HEREDOC], ids=["RUN", "COPY"])
def test_a_heredoc_that_is_not_known_is_a_sentence(tmp_path: Path, dockerfile: str) -> None:
    failure = failure_of(dockerfile, tmp_path)

    assert failure.reason == "syntax_too_new"
    assert failure.detail.startswith("The Dockerfile has a heredoc (<<), which the BuildKit of this worker (Docker")


@pytest.mark.usefixtures("old_buildkit")
def test_a_flag_that_is_not_known_is_a_sentence(tmp_path: Path) -> None:
    failure = failure_of(LINK, tmp_path)

    assert failure.reason == "syntax_too_new"
    assert failure.detail.startswith("The Dockerfile uses --link, which the BuildKit of this worker (Docker")


def test_an_instruction_that_nobody_knows_is_shown_as_it_is_said(tmp_path: Path) -> None:
    failure = failure_of("FROM scratch\nRUNN true\n", tmp_path)

    assert failure.reason == "build_failed"
    assert "unknown instruction: RUNN" in failure.detail
