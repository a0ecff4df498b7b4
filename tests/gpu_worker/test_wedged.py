"""A heartbeat that hangs for ever ends the process, so that whoever supervises it starts a new one."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import HANG_SECONDS, WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
# No answer of a server can hang a heartbeat: every call has its time. A defect of ours could; here is one.
WEDGE_IN_A_SECOND = """
import sys, threading
import gpu_worker.heartbeat, gpu_worker.link
from gpu_worker.__main__ import main
gpu_worker.heartbeat.WEDGED_SECONDS = 1.0
beats = [gpu_worker.link.Link.beat] * 2
gpu_worker.link.Link.beat = lambda link: beats.pop()(link) if beats else threading.Event().wait()
sys.exit(main(["run"]))
"""


def test_a_wedged_heartbeat_ends_the_process_and_the_next_one_goes_on(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    job = plane.queue_job("hello", make_repository(plane.git_root, "hello", {"app.py": WEB_APP}), app_file="app.py")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    pid = ask(worker, lease.id)[1]["pid"]
    worker.terminate()

    wedged = subprocess.run(
        [sys.executable, "-c", WEDGE_IN_A_SECOND], env=worker.environment, cwd=Path(__file__).parents[2],
        capture_output=True, text=True, timeout=HANG_SECONDS,
    )  # fmt: skip

    assert wedged.returncode == 1
    assert "heartbeat is wedged" in wedged.stderr
    worker.start()
    eventually(lambda: ask(worker, lease.id)[1]["pid"] == pid, what="the same app")
