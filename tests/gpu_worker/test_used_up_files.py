"""A worker that has no file left to open takes nothing for an end: it could not look, and looks again."""

from __future__ import annotations

import errno
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpu_worker import open_files
from gpu_worker.errors import EngineSilent
from gpu_worker.journal import JobFacts
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.process_runtime import ProcessRuntime
from gpu_worker.readiness import answers_tcp
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, free_port, make_repository

Make = Callable[..., WorkerProcess]


@contextmanager
def no_file_left() -> Iterator[None]:
    """Nothing can be opened meanwhile."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def files_of(worker: WorkerProcess, soft: int) -> None:
    """Let the running worker have so many files."""
    assert worker.process is not None
    _, hard = resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE, (soft, hard))


def test_a_running_app_outlives_a_time_in_which_nothing_can_be_opened(plane: ControlPlane, make_worker: Make) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": WEB_APP})
    worker = make_worker().start()
    job = plane.queue_job("hello", revision, app_file="app.py")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None and worker.process is not None
    before = ask(worker, lease.id)[1]["pid"]

    files_of(worker, 0)
    eventually(lambda: worker.log().count("cannot_look") >= 2, what="a look that was not possible")
    files_of(worker, 1024)

    looks = worker.log().count("cannot_look")
    eventually(lambda: ask(worker, lease.id)[0] == 200, what="an answer")
    assert ask(worker, lease.id, "/after")[1]["pid"] == before
    eventually(lambda: "asked for /after" in lease.logs["run"], what="log")
    assert plane.state(job) == "running"
    assert lease.kinds() == ["building", "starting", "running"]
    assert worker.log().count("cannot_look") <= looks + 1
    assert "runner_failed" not in worker.log()


def test_a_worker_begins_with_the_files_it_may_have(make_worker: Make) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        worker = make_worker().start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert worker.process is not None
    assert resource.prlimit(worker.process.pid, resource.RLIMIT_NOFILE) == (min(hard, open_files.MOST), hard)


class TestWhoCannotLook:
    def test_does_not_know_whether_an_app_runs(self, tmp_path: Path) -> None:
        app = ProcessRuntime("w", tmp_path, facts())
        assert app.state().status == "exited"

        with no_file_left(), pytest.raises(EngineSilent):
            app.state()
        with no_file_left():
            reference = app.reference
        assert reference == "not known"

    def test_does_not_know_whether_a_process_lives(self) -> None:
        me = ProcessIdentity.of(os.getpid())
        assert me is not None and me.alive()

        with no_file_left(), pytest.raises(OSError, match="Too many open files"):
            me.alive()
        with no_file_left(), pytest.raises(OSError, match="Too many open files"):
            me.signal_group(signal.SIGCONT)

    def test_does_not_know_whether_an_app_answers(self) -> None:
        nowhere = ("127.0.0.1", free_port())
        assert not answers_tcp(nowhere)

        with no_file_left(), pytest.raises(OSError) as problem:
            answers_tcp(nowhere)
        assert problem.value.errno == errno.EMFILE


def facts() -> JobFacts:
    return JobFacts(
        job="j", lease="l", attempt=1, kind="cpu", mode="service", owner="alice", repo="app", repository_id="1",
        revision="0" * 40, port=7860, gpus=(),
    )  # fmt: skip
