"""What the owner reads when a build fails, from what BuildKit says."""

from __future__ import annotations

import pytest

from gpu_worker.images import _LastLines

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
    lines = _LastLines()
    lines.add(said.encode())

    failure = lines.failure(1)

    assert failure.reason == reason
    assert sentence in failure.detail
