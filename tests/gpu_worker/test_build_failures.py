"""What the owner reads when a build fails, from what BuildKit says."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from gpu_worker.build_errors import LastLines
from gpu_worker.build_settings import BuildSettings
from gpu_worker.errors import JobFailed
from gpu_worker.images import plan_build
from gpu_worker.processes import plan_process

NO_HOST = """#3 [internal] load metadata for docker.io/library/python:3.11-slim
#3 ERROR: failed to do request: Head "https://registry.example/v2/": dial tcp: lookup registry.example: no such host
------
 > [internal] load metadata for docker.io/library/python:3.11-slim:
------
failed to solve with frontend dockerfile.v0: failed to do request: dial tcp: lookup registry.example: no such host
"""
UNKNOWN = """------
 > [internal] load metadata for ghcr.example/a/b:1:
------
failed to solve: rpc error: ghcr.example/a/b:1: not found
"""
STEP = """#7 [3/4] RUN pip install no-such-package
#7 1.2 ERROR: No matching distribution found for no-such-package
------
 > [3/4] RUN pip install no-such-package:
------
executor failed running [/bin/sh -c pip install no-such-package]: exit code: 1
"""


@pytest.mark.parametrize(
    ("said", "reason", "sentence"),
    [
        (
            NO_HOST,
            "no_base_image",
            "The base image python:3.11-slim could not be fetched by this worker: no such host.",
        ),
        (UNKNOWN, "no_base_image", "The base image ghcr.example/a/b:1 could not be fetched by this worker: not found."),
        (STEP, "build_failed", "No matching distribution found for no-such-package"),
    ],
    ids=["registry out of reach", "no such image", "a step"],
)
def test_a_failed_build_says_what_failed(said: str, reason: str, sentence: str) -> None:
    lines = LastLines()
    lines.add(said.encode())

    failure = lines.failure(1)

    assert failure.reason == reason
    assert sentence in failure.detail


def test_the_sentence_of_a_failed_build_is_text_and_nothing_that_moves_a_cursor() -> None:
    lines = LastLines()
    lines.add(b"#7 1.2 \x1b[1;31merror\x1b[0m: cannot read caf\xc3\xa9\x1b]0;title\x07 \xe2\x80\xaex\x08\x9b\r\n")

    assert lines.failure(1).detail == (
        "The build ended with code 1: #7 1.2 error: cannot read caf\u00e9 \\342\\200\\256x\ufffd"
    )


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("directory", "The repository's Dockerfile is a directory; it has to be a file."),
        ("link to a directory", "The repository's Dockerfile is a directory; it has to be a file."),
        ("link to nothing", "The Dockerfile is a link to a file that is not there."),
        ("link to itself", "The Dockerfile is a link to a file that is not there."),
        ("link out", "The Dockerfile is a link that leaves the repository."),
    ],
)
@pytest.mark.parametrize("app_file", [None, "app.py"])
def test_a_dockerfile_that_is_no_file_has_its_own_sentence(
    tmp_path: Path, kind: str, sentence: str, app_file: str | None
) -> None:
    source = tmp_path / "source"
    (source / "folder").mkdir(parents=True)
    match kind:
        case "directory":
            (source / "Dockerfile").mkdir()
        case "link to a directory":
            (source / "Dockerfile").symlink_to("folder")
        case "link to nothing":
            (source / "Dockerfile").symlink_to("gone")
        case "link to itself":
            (source / "Dockerfile").symlink_to("Dockerfile")
        case "link out":
            (source / "Dockerfile").symlink_to(tmp_path)

    with pytest.raises(JobFailed) as failure:
        plan_build(SimpleNamespace(app_file=app_file), source, BuildSettings())  # type: ignore[arg-type]

    assert (failure.value.reason, failure.value.detail) == ("dockerfile_unusable", sentence)


def test_an_app_file_that_is_a_directory_has_its_own_sentence(tmp_path: Path) -> None:
    (tmp_path / "app.py").mkdir()

    with pytest.raises(JobFailed) as failure:
        plan_process(SimpleNamespace(sdk="gradio", app_file="app.py"), tmp_path)  # type: ignore[arg-type]

    assert failure.value.reason == "no_app_file"
    assert failure.value.detail == "The app_file app.py is a directory; it has to be a file."
