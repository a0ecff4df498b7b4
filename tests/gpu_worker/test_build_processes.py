"""Plain processes go by the same README keys and files as containers, and say what they cannot give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.gpu_worker.builds import FRAMEWORK, about, wheel
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
FROM_HERE = "--no-index\n--find-links ./wheels\n"


def served(plane: ControlPlane, repo: str, files: dict[str, Any], **changes: Any) -> Lease:
    revision = make_repository(plane.git_root, repo, files)
    job = plane.queue_job(repo, revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def test_an_sdk_s_own_package_is_installed_with_the_rest(plane: ControlPlane, make_worker: Make) -> None:
    files = {
        "wheels/streamlit-9.9.9-py3-none-any.whl": wheel("streamlit", "9.9.9", FRAMEWORK + "\nserve()\n"),
        "wheels/extra-1.0-py3-none-any.whl": wheel("extra", "1.0", ""),
        "pre-requirements.txt": FROM_HERE + "extra\n",
        "requirements.txt": FROM_HERE,
        "packages.txt": "ffmpeg\n",
        "start.py": "",
    }
    worker = make_worker().start()

    lease = served(
        plane, "words", files, sdk="streamlit", sdk_version="9.9.9", python_version="3.7", app_file="start.py"
    )

    assert about(ask(worker, lease.id)[1])["words"][:2] == ["run", "start.py"]
    log = lease.logs["build"]
    assert log.index("Successfully installed extra-1.0") < log.index("Successfully installed streamlit-9.9.9")
    assert "The README asks for Python 3.7; this worker runs plain processes with Python 3." in log
    assert "This worker runs plain processes and installs no Debian packages: ffmpeg.\n" in log


def test_a_static_page_of_any_name_is_what_visitors_see(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()

    lease = served(plane, "page", {"site/start.html": "<h1>Hello</h1>"}, sdk="static", app_file="site/start.html")

    assert ask(worker, lease.id, "/") == (200, b"<h1>Hello</h1>")
