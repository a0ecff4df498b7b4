"""A build that is cancelled, or takes too long, is over on the engine too: its steps are gone, and no image is left."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from gpu_worker.errors import JobFailed, JobInterrupted
from gpu_worker.protocol import Limits
from tests.gpu_worker.builds import Build, claim, running_with, write
from tests.gpu_worker.images import container_files
from tests.gpu_worker.worker import eventually

pytestmark = pytest.mark.docker


class Endless:
    """A build with a step that sleeps for minutes in a process that can be told from all others."""

    def __init__(self, directory: Path, limits: Limits | None = None) -> None:
        self.step = f"step-{uuid.uuid4().hex}"
        script = "echo waiting; sleep 600; :"
        dockerfile = (
            "FROM scratch\n"
            "COPY busybox /bin/busybox\n"
            'RUN ["/bin/busybox", "--install", "-s", "/bin"]\n'
            f'RUN ["/bin/busybox", "sh", "-c", "{script}", "{self.step}"]\n'
        )
        files = container_files(Dockerfile=dockerfile)
        self.build = Build(claim(limits=limits or Limits()), write(directory, files))
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run)

    def start(self) -> None:
        self._thread.start()

    def wait(self) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.build.run()
        except (JobFailed, JobInterrupted) as failure:
            self.failure = failure


@pytest.fixture
def endless(tmp_path: Path) -> Iterator[Endless]:
    build = Endless(tmp_path)
    yield build
    build.build.cancel.set()


def test_a_cancelled_build_s_step_is_gone_from_the_engine(endless: Endless) -> None:
    endless.start()
    eventually(lambda: running_with(endless.step), what="the step")

    endless.build.cancel.set()
    endless.wait()

    assert isinstance(endless.failure, JobInterrupted)
    eventually(lambda: not running_with(endless.step), what="the end of the step")
    assert images_of(endless.build) == []


def test_a_build_beyond_its_limit_is_cut_and_says_so(tmp_path: Path) -> None:
    endless = Endless(tmp_path, Limits(build_timeout_seconds=3))

    endless.start()
    endless.wait()

    assert isinstance(endless.failure, JobFailed)
    assert (endless.failure.reason, endless.failure.detail) == (
        "build_timeout",
        "The build took longer than its limit of 3 s.",
    )
    eventually(lambda: not running_with(endless.step), what="the end of the step")
    assert images_of(endless.build) == []


def images_of(build: Build) -> list[str]:
    engine = docker.from_env()
    try:
        return [str(image.id) for image in engine.images.list(filters={"label": f"openface.worker={build.mark}"})]
    finally:
        engine.close()
