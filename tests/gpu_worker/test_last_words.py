"""However much an app writes before it ends, its last words are in the log and in the reason, and no secret is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]

SECRET = "abcdefghij" * 60


def failed(plane: ControlPlane, name: str, command: str) -> Lease:
    """The lease of a Space that does *command* and ends with 7."""
    dockerfile = DOCKERFILE.replace("echo serving; exec busybox httpd", f"{command}; exit 7; busybox httpd")
    revision = make_repository(plane.git_root, name, container_files(Dockerfile=dockerfile))
    job = plane.queue_job(name, revision, secrets={"KEY": SECRET})
    eventually(lambda: plane.state(job) == "failed", what="the failure")
    lease = plane.lease_of(job)
    assert lease is not None
    return lease


def test_the_last_words_of_a_flood_are_kept(plane: ControlPlane, make_worker: Make) -> None:
    make_worker(executor="docker").start()

    lease = failed(plane, "flood", "busybox seq 300000; echo the reason")

    assert lease.events[-1]["detail"] == "The app ended with code 7. Its last line: the reason"
    log = lease.logs["run"]
    assert log.startswith("1\n2\n3\n")
    assert log.endswith("\n299999\n300000\nthe reason\n")
    assert_every_gap_is_told(log)


def test_what_the_engine_threw_away_before_it_was_read_is_told(plane: ControlPlane, make_worker: Make) -> None:
    """The engine keeps 30 MB of a container's log: less than is written here before anybody could read it."""
    make_worker(executor="docker").start()

    lease = failed(plane, "torrent", "busybox seq 1200000; echo the reason")

    log = lease.logs["run"]
    assert log.startswith("1\n2\n3\n")
    assert log.endswith("\n1199999\n1200000\nthe reason\n")
    assert_every_gap_is_told(log)


def assert_every_gap_is_told(log: str) -> None:
    """Numbers follow each other, unless a line with an ellipsis stands between them."""
    before: int | None = 0
    for line in log.splitlines():
        if line.startswith("…"):
            before = None
        elif line.isdigit():
            assert before is None or int(line) == before + 1, f"{before} is followed by {line}"
            before = int(line)


def test_a_secret_that_is_cut_in_the_last_line_stays_one(plane: ControlPlane, make_worker: Make) -> None:
    make_worker(executor="docker").start()
    dots = "busybox seq -s . 1100"  # some 4,300 characters

    lease = failed(plane, "cut", f"echo $KEY$({dots} | busybox head -c 3700)")

    assert "abcdefghij" not in lease.events[-1]["detail"]
    assert "abcdefghij" not in lease.logs["run"]
    assert lease.events[-1]["detail"].startswith("The app ended with code 7. Its last line: ***1.2.3.")
