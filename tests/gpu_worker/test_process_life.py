"""A job's whole life under the process executor: claimed, fetched, started, served, stopped, cleared."""

from __future__ import annotations

from collections.abc import Callable

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]


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
