"""One short container with one GPU, to see what a job would see."""

from __future__ import annotations

import time

from docker.models.containers import Container
from docker.types import DeviceRequest, LogConfig

from gpu_worker.containers.connection import Connection, Missing, engine_errors, quietly
from gpu_worker.containers.labels import ROLE_LABEL, WORKER_LABEL
from gpu_worker.gpu_sight import PROBE

TRIAL = "trial"
TRIAL_SECONDS = 60
STALE_SECONDS = 2 * TRIAL_SECONDS
LONGEST_OUTPUT = 16 * 1024  # bytes
NOT_ENROLLED = "none"
# Images that people who run GPU jobs often have, and in which the driver's program can run. Never a Space's: its own
# nvidia-smi would say what its author likes.
LIKELY = (
    "python:3.11-slim",
    "python:3.12-slim",
    "python:3-slim",
    "debian:stable-slim",
    "ubuntu:24.04",
    "ubuntu:22.04",
    "openface/gpu-worker",  # as compose builds it
)


class GpuTrial:
    def __init__(self, connection: Connection | None = None, *, worker_id: str | None = None) -> None:
        """*worker_id*: whose trial it is; None: of a worker that is not enrolled yet."""
        self._engine = connection or Connection()
        self._labels = {ROLE_LABEL: TRIAL, WORKER_LABEL: worker_id or NOT_ENROLLED}

    def image(self, wanted: str | None) -> str | None:
        """The id of an image to try with, of those that are here; None: there is none. Raises EngineError."""
        for name in (wanted,) if wanted else LIKELY:
            try:
                with engine_errors():
                    return str(self._engine().images.get(name).id)
            except Missing:
                continue
        return None

    def run(self, image: str, uuid: str) -> tuple[int, str]:
        """Exit code and output of the driver's own list of GPUs, in a container that was given the GPU *uuid*.

        Raises EngineError where the engine does not start it. Nothing of it is left.
        """
        self._remove_stale()
        with engine_errors():
            container = self._engine().containers.create(
                image,
                entrypoint=list(PROBE),
                command=[],
                environment={"NVIDIA_VISIBLE_DEVICES": uuid, "NVIDIA_DRIVER_CAPABILITIES": "utility"},
                labels=self._labels,
                network_mode="none",
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                pids_limit=64,
                mem_limit="256m",
                log_config=LogConfig(type="json-file", config={"max-size": "64k", "max-file": "1"}),
                device_requests=[DeviceRequest(device_ids=[uuid], capabilities=[["gpu"]])],
            )
        try:
            with engine_errors():
                container.start()
                ended = container.wait(timeout=TRIAL_SECONDS)
                output = container.logs(stdout=True, stderr=True, tail=100)[:LONGEST_OUTPUT]
            return int(ended["StatusCode"]), output.decode(errors="replace")
        finally:
            _remove(container)

    def _remove_stale(self) -> None:
        """What a doctor who was killed left running; a young one may be another doctor's, at work."""
        labels = [f"{name}={value}" for name, value in self._labels.items()]
        with engine_errors():
            left = self._engine().containers.list(all=True, filters={"label": labels}, sparse=True)
        for container in left:
            if int(container.attrs.get("Created") or 0) < time.time() - STALE_SECONDS:
                _remove(container)


def _remove(container: Container) -> None:
    quietly(lambda: container.remove(force=True, v=True))
