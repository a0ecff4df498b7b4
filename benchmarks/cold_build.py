"""What a worker adds to a build: the same Dockerfile and files, built by it and by a bare `docker build`, in turns.

Nothing of either comes from the cache. The clone is not in it, and neither is the way of the log to the control plane,
which has a thread of its own.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import uuid
from pathlib import Path

import docker

from benchmarks.measurement import Measurement
from gpu_worker.build_settings import BuildSettings
from gpu_worker.containers import ContainerEngine
from gpu_worker.images import BuildTool, find_build_tool
from gpu_worker.protocol import Claim
from tests.e2e.world import World
from tests.gpu_worker.builds import claim, python_image

ROUNDS = 9
SHARE, SECONDS = 0.05, 0.5  # of a bare build, or so long: what is more
FILES, FILE_BYTES = 200, 100_000
DOCKERFILE = """\
FROM {base}
WORKDIR /app
COPY . .
RUN python -m compileall -q . && python -c "import hashlib; hashlib.pbkdf2_hmac('sha256', b'', b'', 2_000_000)"
RUN for n in $(seq 200); do echo "line $n of the log of a build that says something"; done
CMD ["python", "app.py"]
"""


def measure(world: World) -> list[Measurement]:
    """Build in turns, and take the medians."""
    tool = find_build_tool()
    assert tool is not None, "there is no docker with BuildKit"
    worker = str(uuid.uuid4())
    bare, ours = [], []
    with tempfile.TemporaryDirectory(prefix="openface-bench-") as directory:
        source = Path(directory) / "source"
        engine = ContainerEngine(worker, build=BuildSettings(lent=(python_image(),)))
        for number in range(1 + ROUNDS):
            for turn in (number, number + 1):  # who is second finds a warmer machine
                _write_context(source)
                if turn % 2:
                    bare.append(_build_bare(tool, source, worker))
                else:
                    ours.append(_build_as_worker(engine, source, claim(revision=f"{number:040x}")))
    _remove_images(worker)
    del bare[0], ours[0]  # the first reads the base image
    alone, added = statistics.median(bare), statistics.median(ours) - statistics.median(bare)
    limit = max(SHARE * alone, SECONDS)
    goal = f"<= {SECONDS:g} s or {SHARE:.0%} of a bare build"
    return [
        Measurement("cold_build_overhead", round(added, 3), "s", goal, added <= limit),
        Measurement("cold_build_overhead_share", round(added / alone, 3), ""),
        Measurement("cold_build_bare_s", round(alone, 3), "s"),
    ]


def _write_context(source: Path) -> None:
    """The files of a Space. One of them has never been there before, so that nothing comes from the cache."""
    shutil.rmtree(source, ignore_errors=True)
    source.mkdir()
    (source / "Dockerfile").write_text(DOCKERFILE.format(base=python_image()))
    (source / "app.py").write_text(f"print({uuid.uuid4().hex!r})\n")
    for number in range(FILES):
        (source / f"data-{number}.bin").write_bytes(bytes([number % 256]) * FILE_BYTES)


def _build_bare(tool: BuildTool, source: Path, worker: str) -> float:
    argv = [tool.path, *tool.build, "--progress=plain", f"--label=openface.worker={worker}", str(source)]
    begun = time.monotonic()
    subprocess.run(argv, env={**os.environ, **tool.environment}, check=True, capture_output=True)
    return time.monotonic() - begun


def _build_as_worker(engine: ContainerEngine, source: Path, job: Claim) -> float:
    said: list[bytes] = []
    begun = time.monotonic()
    engine.prepare(job, source, output=said.append, cancel=threading.Event(), started=lambda identity: None)
    return time.monotonic() - begun


def _remove_images(worker: str) -> None:
    engine = docker.from_env()
    try:
        for image in engine.images.list(filters={"label": f"openface.worker={worker}"}):
            engine.images.remove(str(image.id), force=True)
    finally:
        engine.close()
