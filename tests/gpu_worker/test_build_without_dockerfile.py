"""Spaces without a Dockerfile, as their authors know them from elsewhere, built and served for real."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gpu_worker.errors import JobFailed
from tests.gpu_worker.builds import FRAMEWORK, Build, about, claim, image_content, python_image, wheel, write
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]

# so that no test needs an index
FROM_HERE = "--no-index\n--find-links ./wheels\n"
GRADIO = {
    "wheels/gradio-9.9.9-py3-none-any.whl": wheel("gradio", "9.9.9", FRAMEWORK),
    "wheels/spaces-1.0-py3-none-any.whl": wheel("spaces", "1.0", ""),
    "wheels/extra-1.0-py3-none-any.whl": wheel("extra", "1.0", ""),
    "requirements.txt": FROM_HERE + "extra\n",
    "app.py": "import extra, gradio, spaces\ngradio.serve('GRADIO_SERVER_PORT')\n",
    ".dockerignore": "app.py\n",
}
STREAMLIT = {
    "wheels/streamlit-9.9.9-py3-none-any.whl": wheel(
        "streamlit",
        "9.9.9",
        FRAMEWORK + "\n\ndef main():\n    serve('STREAMLIT_SERVER_PORT')\n",
        scripts={"streamlit": "streamlit:main"},
    ),
    "requirements.txt": FROM_HERE,
    "pages/start.py": "",
}


@pytest.fixture
def worker(make_worker: Make) -> WorkerProcess:
    return make_worker(executor="docker", OPENFACE_BASE_IMAGE=python_image()).start()


def served(plane: ControlPlane, repo: str, files: dict[str, Any], **changes: Any) -> Lease:
    revision = make_repository(plane.git_root, repo, files)
    job = plane.queue_job(repo, revision, **changes)
    eventually(lambda: plane.state(job) in ("running", "failed"), seconds=60, what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs)
    return lease


def test_a_gradio_space_runs_with_its_packages_as_an_ordinary_user(plane: ControlPlane, worker: WorkerProcess) -> None:
    lease = served(plane, "words", GRADIO, sdk="gradio", sdk_version="9.9.9", python_version="3.8")

    status, body = ask(worker, lease.id)
    assert status == 200
    app = about(body)
    assert (app["uid"], app["home"], app["directory"]) == (1000, "/home/user", "/home/user/app")
    assert {"app.py", "written"} <= set(app["files"])
    log = lease.logs["build"]
    assert f"    FROM {python_image()}\n" in log
    assert "    RUN pip install -r requirements.txt 'gradio[oauth]==9.9.9' spaces\n" in log
    assert '    CMD ["python", "app.py"]\n' in log
    assert "The README asks for Python 3.8; this worker builds everything on " in log


def test_a_streamlit_space_runs_on_its_port_and_the_second_time_without_a_build(
    plane: ControlPlane, worker: WorkerProcess
) -> None:
    wishes: dict[str, Any] = {"sdk": "streamlit", "app_file": "pages/start.py", "port": 8501}
    first = served(plane, "sliders", STREAMLIT, **wishes)
    assert about(ask(worker, first.id)[1])["words"] == ["run", "pages/start.py"]
    image_id = first.events[-1]["image_id"]
    plane.stop_job(first.claim["id"])
    eventually(lambda: first.cleared, what="clearing")

    job = plane.queue_job("sliders", first.claim["revision"], **wishes, build_args={"GREETING": "hello"})
    eventually(lambda: plane.state(job) == "running", what="running again")

    second = plane.lease_of(job)
    assert second is not None
    assert second.logs["build"].splitlines()[-1].endswith("is already here; nothing to build.")
    assert second.events[-1]["image_id"] == image_id


def test_a_static_space_is_served_from_its_page(plane: ControlPlane, worker: WorkerProcess) -> None:
    files = {"site/start.html": "<h1>Hello</h1>", "site/style.css": "h1 {}", "README.md": "not of the site"}

    lease = served(plane, "page", files, sdk="static", app_file="site/start.html")

    assert ask(worker, lease.id, "/") == (200, b"<h1>Hello</h1>")
    assert ask(worker, lease.id, "/style.css") == (200, b"h1 {}")
    assert ask(worker, lease.id, "/README.md")[0] == 404


def test_what_a_readme_has_wrong_is_said_before_anything_is_built(plane: ControlPlane, worker: WorkerProcess) -> None:
    revision = make_repository(plane.git_root, "old", {"app.py": ""})

    job = plane.queue_job("old", revision, sdk="gradio", python_version="2.7")
    eventually(lambda: plane.state(job) == "failed", what="the failure")

    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.events[-1]["reason"] == "readme_unusable"
    assert "python_version is '2.7'" in lease.events[-1]["detail"]
    assert "#1 " not in lease.logs["build"]


def test_the_owner_s_index_is_used_and_leaves_no_trace(tmp_path: Path) -> None:
    settings = write(
        tmp_path / "machine",
        {"pip.conf": "[global]\n# hidden-in-the-settings\nindex-url = https://index.invalid/simple\nretries = 0\n"},
    )
    source = write(
        tmp_path / "source",
        {
            "wheels/extra-1.0-py3-none-any.whl": wheel("extra", "1.0", ""),
            "requirements.txt": "--find-links ./wheels\nextra\n",
            "app.py": "",
        },
    )
    build = Build(claim(app_file="app.py"), source)
    build.settings = type(build.settings)(python_image=python_image(), pip_config=settings / "pip.conf")
    try:
        image_id = build.run()

        assert "Looking in indexes: https://index.invalid/simple" in build.log
        assert "hidden-in-the-settings" not in build.log
        for name, content in image_content(image_id):
            assert not name.endswith("pip.conf") or not content
            assert b"hidden-in-the-settings" not in content and b"index.invalid" not in content, name
    finally:
        build.forget()


def test_debian_packages_on_a_base_image_without_apt_are_a_sentence(tmp_path: Path) -> None:
    build = Build(claim(app_file="app.py"), write(tmp_path, {"app.py": "", "packages.txt": "curl\n"}))

    with pytest.raises(JobFailed) as failure:
        build.run()

    assert failure.value.reason == "build_failed"
    assert failure.value.detail == "The base image has no apt-get, which the build needs for Debian packages."
