"""What a Space asks of PyPI and Debian, fetched, built and served for real; left out unless OPENFACE_TEST_INDEX is set.

The worker gets the machine's own OPENFACE_PIP_CONFIG and OPENFACE_APT_SOURCES, where the suite is started with them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from tests.gpu_worker.builds import MAKE_IMAGE
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = [pytest.mark.docker, pytest.mark.index, pytest.mark.timeout(900)]
Make = Callable[..., WorkerProcess]
DEBIAN_IMAGE = "openface-local/debian:test"

# Answers with what the packages of each of the three files are good for.
SPEAKING = """
import json, os, subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version

import humanize

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        banner = subprocess.run(["figlet", "-f", "banner", "gpu"], capture_output=True, text=True, check=True).stdout
        about = {
            "banner": banner, "humanize": version("humanize"), "first": version("wheel"),
            "size": humanize.naturalsize(24 * 10**9), "uid": os.getuid(),
        }
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(about).encode())

    def log_message(self, *arguments):
        pass

HTTPServer(("0.0.0.0", 7860), Handler).serve_forever()
"""


@pytest.fixture(scope="module")
def debian_image() -> str:
    """A base image with apt, made of this machine's package mirror where it is not there yet."""
    there = subprocess.run(["docker", "image", "inspect", DEBIAN_IMAGE], capture_output=True, check=False)
    if there.returncode != 0:
        made = subprocess.run(
            [sys.executable, str(MAKE_IMAGE), "--debian", DEBIAN_IMAGE], capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
    return DEBIAN_IMAGE


@pytest.fixture
def worker(make_worker: Make, debian_image: str) -> WorkerProcess:
    names = ("OPENFACE_PIP_CONFIG", "OPENFACE_APT_SOURCES")
    own = {name: os.environ[name] for name in names if name in os.environ}
    return make_worker(executor="docker", OPENFACE_PYTHON_IMAGE=debian_image, **own).start()


def served(plane: ControlPlane, repo: str, files: Mapping[str, str], **changes: Any) -> Lease:
    job = plane.queue_job(repo, make_repository(plane.git_root, repo, files), **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), seconds=800, what="running")
    lease = plane.lease_of(job)
    assert lease is not None and lease.state == "running", lease and (lease.events, lease.logs)
    return lease


def version_in(lease: Lease, package: str) -> str:
    """What is installed in the app's image. The build's log does not tell where its steps came from the cache."""
    ask_python = f"from importlib.metadata import version; print(version({package!r}))"
    command = ["docker", "run", "--rm", "--network=none", lease.events[-1]["image_id"], "python", "-c", ask_python]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize(
    ("sdk", "version", "app"),
    [
        ("gradio", "5.49.1", "import gradio as gr\ngr.Interface(lambda name: name, 'text', 'text').launch()\n"),
        ("streamlit", "1.40.0", "import streamlit as st\nst.title('Hello')\n"),
    ],
)
def test_the_real_frameworks_run(plane: ControlPlane, worker: WorkerProcess, sdk: str, version: str, app: str) -> None:
    lease = served(plane, sdk, {"app.py": app}, sdk=sdk, sdk_version=version)

    status, page = ask(worker, lease.id)
    assert status == 200
    assert sdk.encode() in page.lower()
    assert version_in(lease, sdk) == version


def test_debian_packages_and_both_requirements_files_are_there_for_the_app(
    plane: ControlPlane, worker: WorkerProcess
) -> None:
    files = {
        "packages.txt": "figlet  # for banners\n",
        "pre-requirements.txt": "wheel==0.45.1\n",
        "requirements.txt": "humanize>=4\n",
        "app.py": SPEAKING,
    }

    lease = served(plane, "banner", files, app_file="app.py")

    status, body = ask(worker, lease.id)
    about = body if isinstance(body, dict) else json.loads(body)
    assert status == 200
    assert about["banner"].count("#") > 20
    assert (about["first"], about["size"], about["uid"]) == ("0.45.1", "24.0 GB", 1000)
    log = lease.logs["build"]
    steps = ["install -y --no-install-recommends figlet", "pip install -r pre-req", "pip install -r requirements.txt"]
    places = [log.index(step) for step in steps]
    assert places == sorted(places)


def test_a_debian_package_that_does_not_exist_is_named(plane: ControlPlane, worker: WorkerProcess) -> None:
    files = {"packages.txt": "openface-no-such-package\n", "app.py": ""}
    job = plane.queue_job("typo", make_repository(plane.git_root, "typo", files), app_file="app.py")

    eventually(lambda: plane.state(job) == "failed", seconds=300, what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "build_failed"
    assert "openface-no-such-package" in lease.events[-1]["detail"]
