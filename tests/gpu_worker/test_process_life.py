"""A job's whole life under the process executor: claimed, fetched, started, served, stopped, cleared."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
# Takes connections, and does not come up: APP says how.
SICK_APP = """
import os, socket, threading, time
def serve(client):
    if os.environ["APP"] == "answers 500":
        client.recv(4096)
        client.sendall(b"HTTP/1.1 500 Oops\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
        client.close()
    elif os.environ["APP"] == "talks nonsense":
        client.sendall(b"220 mail ready\\r\\n")
        client.close()
with socket.create_server(("127.0.0.1", int(os.environ["PORT"]))) as listener:
    while True:
        serve(listener.accept()[0])
"""


def test_a_space_runs_and_is_reached_through_the_gateway(plane: ControlPlane, make_worker: Make) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": WEB_APP})
    worker = make_worker().start()

    job = plane.queue_job(
        "hello", revision, app_file="app.py", environment={"GREETING": "hi"}, secrets={"KEY": "s3cr3t!"}
    )
    eventually(lambda: plane.state(job) == "running", what="running")

    lease = plane.lease_of(job)
    assert lease is not None
    status, body = ask(worker, lease.id, "/some/path?x=1")
    assert (status, body["path"]) == (200, "/some/path?x=1")
    assert body["environment"]["GREETING"] == "hi"
    assert body["environment"]["KEY"] == "s3cr3t!"
    assert body["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    assert lease.kinds() == ["building", "starting", "running"]
    eventually(lambda: "asked for /some/path?x=1" in lease.logs["run"], what="log")
    assert lease.logs["system"].startswith(f"revision {revision} · worker gpu1 · lease {lease.id} · gpus none\n")


def test_a_stop_ends_the_app_and_clears_its_lease(plane: ControlPlane, make_worker: Make) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": WEB_APP})
    worker = make_worker().start()
    job = plane.queue_job("hello", revision, app_file="app.py")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None

    plane.stop_job(job)

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds()[-1] == "stopped"
    assert ask(worker, lease.id)[0] == 404
    assert worker.journal() == []


@pytest.mark.parametrize(
    ("app", "told"),
    [
        ("answers 500", "answered GET / with status 500 for 2 s."),
        ("talks nonsense", "gave no HTTP answer to GET / for 2 s."),
    ],
)
def test_an_app_that_takes_connections_and_is_not_up_is_told_what_it_did(
    plane: ControlPlane, make_worker: Make, app: str, told: str
) -> None:
    revision = make_repository(plane.git_root, "sick", {"app.py": SICK_APP})
    make_worker().start()

    job = plane.queue_job("sick", revision, app_file="app.py", startup_timeout_s=2, environment={"APP": app})

    eventually(lambda: plane.state(job) == "failed", what="the failure")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "startup_timeout"
    assert lease.events[-1]["detail"].startswith("The app takes connections on port ")
    assert lease.events[-1]["detail"].endswith(told)
