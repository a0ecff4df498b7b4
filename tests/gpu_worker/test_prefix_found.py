"""When an app begins to answer, the worker looks whether it lives at its root or below its prefix, and says so."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from gpu_worker.readiness import Probe
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
BASE = "/run/alice/lab/"

JUPYTER_LIKE = """\
import http.server, os
from os import environ
BASE = environ["OPENFACE_BASE_PATH"]
class Lab(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        below = self.path.startswith(BASE + "/")
        self.send_response(302 if self.path == BASE + "/" else 200 if below else 404)
        self.send_header("Location", BASE + "/lab")
        self.send_header("Content-Length", "0")
        self.end_headers()
http.server.ThreadingHTTPServer(("127.0.0.1", int(environ["PORT"])), Lab).serve_forever()
"""


@contextmanager
def app(answers: Callable[[str], int]) -> Iterator[tuple[tuple[str, int], list[str]]]:
    """An app that answers each path with a status; its address, and the paths that it was asked for."""
    asked: list[str] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(answers(self.path))
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield ("127.0.0.1", server.server_port), asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.mark.parametrize(
    ("root", "below", "found"),
    [
        (404, 200, "keep"),
        (404, 302, "keep"),
        (404, 404, "strip"),  # a bare API: nothing at either place
        (404, 500, "strip"),
        (200, 200, "strip"),  # a page for every path
        (302, 200, "strip"),
        (401, 200, "strip"),
        (403, 404, "strip"),
    ],
)
def test_an_app_that_is_only_below_its_prefix_wants_it_kept(root: int, below: int, found: str) -> None:
    with app(lambda path: root if path == "/" else below if path == BASE else 418) as (address, asked):
        probe = Probe(BASE)

        assert probe.answers(address)

    assert probe.prefix == found
    assert asked == (["/", BASE] if root == 404 else ["/"])


def test_an_app_that_boots_is_not_asked_for_more_than_its_root() -> None:
    status = 503
    with app(lambda path: status if path == "/" else 200) as (address, asked):
        probe = Probe(BASE)

        assert not probe.answers(address)
        assert (probe.prefix, asked) == (None, ["/"])
        status = 404
        assert probe.answers(address)

    assert probe.prefix == "keep"


def test_nothing_is_found_where_nothing_listens_or_there_is_no_prefix() -> None:
    with app(lambda path: 404) as (address, asked):
        probe = Probe("/")
        assert probe.answers(address)
        assert (probe.prefix, asked) == (None, ["/"])

    assert not Probe(BASE).answers(address)


def test_the_server_is_told_when_the_app_runs(plane: ControlPlane, make_worker: Make) -> None:
    revision = make_repository(plane.git_root, "lab", {"app.py": JUPYTER_LIKE})
    make_worker().start()

    job = plane.queue_job(
        "lab", revision, app_file="app.py", environment={"OPENFACE_BASE_PATH": BASE.rstrip("/")}, base_path=BASE
    )
    eventually(lambda: plane.state(job) == "running", what="running")

    lease = plane.lease_of(job)
    assert lease is not None
    assert [event["prefix"] for event in lease.events if event["kind"] == "running"] == ["keep"]
