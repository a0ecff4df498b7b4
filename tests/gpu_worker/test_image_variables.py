"""What an image sets itself reaches its app, but for what the worker alone decides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.images import DOCKERFILE, container_files
from tests.gpu_worker.served import running
from tests.gpu_worker.worker import WorkerProcess, make_repository

pytestmark = pytest.mark.docker
Make = Callable[..., WorkerProcess]


def test_an_image_asks_for_no_devices(plane: ControlPlane, make_worker: Make) -> None:
    sets = "ENV NVIDIA_MIG_CONFIG_DEVICES=all NVIDIA_IMEX_CHANNELS=0 NVIDIA_DRIVER_CAPABILITIES=compute OWN=1\n"
    start = 'CMD ["sh", "-c", "env > /www/env; exec httpd -f -p 7860 -h /www"]\n'
    revision = make_repository(plane.git_root, "asks", container_files(Dockerfile=DOCKERFILE + sets + start))
    worker = make_worker(executor="docker").start()

    lease = running(plane, "asks", revision)

    inside = ask(worker, lease.id, "/env")[1].decode().splitlines()
    assert {line for line in inside if line.startswith(("NVIDIA_", "OWN"))} == {
        "NVIDIA_VISIBLE_DEVICES=void",
        "NVIDIA_DRIVER_CAPABILITIES=compute",
        "OWN=1",
    }
