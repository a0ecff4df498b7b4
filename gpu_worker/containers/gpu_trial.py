"""One short container with one GPU, to see what a job would see."""

from __future__ import annotations

from docker.types import DeviceRequest

from gpu_worker.containers.connection import Connection, Missing, engine_errors, quietly
from gpu_worker.containers.labels import IMAGE, ROLE_LABEL
from gpu_worker.gpu_sight import PROBE

TRIAL = "trial"
TRIAL_SECONDS = 60
LONGEST_OUTPUT = 16 * 1024  # bytes
# Images that people who run GPU jobs often have, and in which the driver's program can run.
LIKELY = ("python:3.11-slim", "python:3.12-slim", "python:3-slim", "debian:stable-slim", "ubuntu:24.04", "ubuntu:22.04")


class GpuTrial:
    def __init__(self, connection: Connection | None = None) -> None:
        self._engine = connection or Connection()

    def image(self, wanted: str | None) -> str | None:
        """The id of an image to try with, of those that are here; None: there is none. Raises EngineError."""
        for name in (wanted,) if wanted else LIKELY:
            try:
                with engine_errors():
                    return str(self._engine().images.get(name).id)
            except Missing:
                continue
        return None if wanted else self._newest_of_ours()

    def _newest_of_ours(self) -> str | None:
        with engine_errors():
            images = self._engine().images.list(filters={"label": f"{ROLE_LABEL}={IMAGE}"})
        return str(max(images, key=lambda image: str(image.attrs.get("Created"))).id) if images else None

    def run(self, image: str, uuid: str) -> tuple[int, str]:
        """Exit code and output of the driver's own list of GPUs, in a container that was given the GPU *uuid*.

        Raises EngineError where the engine does not start it. Nothing of it is left.
        """
        with engine_errors():
            container = self._engine().containers.create(
                image,
                entrypoint=list(PROBE),
                command=[],
                environment={"NVIDIA_VISIBLE_DEVICES": uuid, "NVIDIA_DRIVER_CAPABILITIES": "utility"},
                labels={ROLE_LABEL: TRIAL},
                network_mode="none",
                cap_drop=["ALL"],
                security_opt=["no-new-privileges:true"],
                pids_limit=64,
                mem_limit="256m",
                device_requests=[DeviceRequest(device_ids=[uuid], capabilities=[["gpu"]])],
            )
        try:
            with engine_errors():
                container.start()
                ended = container.wait(timeout=TRIAL_SECONDS)
                output = container.logs(stdout=True, stderr=True)[:LONGEST_OUTPUT]
            return int(ended["StatusCode"]), output.decode(errors="replace")
        finally:
            quietly(lambda: container.remove(force=True, v=True))
