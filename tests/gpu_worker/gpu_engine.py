"""A Docker engine of its own, on which GPUs can be given to containers: those of the stand-in driver.

The toolkit's hook has to be on the PATH of dockerd when it starts, so the engine of this machine is of no use.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.gpu_worker.nvml import build_lister, build_nvml_stub
from tests.gpu_worker.worker import eventually

HOOK_SOURCE = Path(__file__).with_name("nvidia_hook.py")


class GpuEngine:
    """*host* is the engine's address; *environment* what a worker needs beside it to find the stand-in driver."""

    def __init__(self, directory: Path) -> None:
        self.toolkit = directory / "toolkit"
        (self.toolkit / "bin").mkdir(parents=True)
        library = build_nvml_stub(self.toolkit)
        shutil.copy(library / "libnvidia-ml.so.1", self.toolkit)
        build_lister(self.toolkit / "nvidia-smi")
        for name in ("nvidia-container-runtime-hook", "nvidia-container-runtime"):
            script = self.toolkit / "bin" / name
            script.write_text(f'#!/bin/sh\nexec {sys.executable} {HOOK_SOURCE} "$@"\n')
            script.chmod(0o755)
        self.driver = directory / "gpus.txt"
        self.host = f"unix://{directory}/docker.sock"
        self.environment = {
            "DOCKER_HOST": self.host, "LD_LIBRARY_PATH": str(library), "STUB_NVML_FILE": str(self.driver),
        }  # fmt: skip
        self._directory = directory
        self._bridge = f"gpu{os.getpid()}"

    def has(self, gpus: Sequence[str], *, driver: Sequence[str] | None = None) -> None:
        """These GPUs are there for containers, and (unless *driver* says others) for the driver of the machine."""
        (self.toolkit / "gpus.txt").write_text("".join(f"{line}\n" for line in gpus))
        self.driver.write_text("".join(f"{line}\n" for line in (gpus if driver is None else driver)))

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        directory = self._directory
        (directory / "daemon.json").write_text(json.dumps(self._settings()))
        environment = {
            **os.environ, "PATH": f"{self.toolkit}/bin:{os.environ['PATH']}", "STUB_TOOLKIT": str(self.toolkit)
        }  # fmt: skip
        command = [
            "dockerd", f"--config-file={directory}/daemon.json",
            "--containerd-namespace=openface-tests", "--containerd-plugins-namespace=openface-tests-plugins",
        ]  # fmt: skip
        with self._own_bridge(), open(directory / "dockerd.log", "wb") as log:
            daemon = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                eventually(lambda: self._answers(daemon), what="the engine")
                yield
            finally:
                daemon.terminate()
                daemon.wait(30)

    def _settings(self) -> dict[str, Any]:
        return {
            "data-root": f"{self._directory}/root",
            "exec-root": f"{self._directory}/exec",
            "pidfile": f"{self._directory}/docker.pid",
            "hosts": [self.host],
            "bridge": self._bridge,
            "iptables": False,
            "ip-masq": False,
            "default-address-pools": [{"base": f"10.{200 + os.getpid() % 50}.0.0/16", "size": 24}],
            "runtimes": {"nvidia": {"path": f"{self.toolkit}/bin/nvidia-container-runtime"}},
            "default-runtime": "nvidia",
        }

    @contextlib.contextmanager
    def _own_bridge(self) -> Iterator[None]:
        """With "none" an engine removes the bridge of the machine's own engine."""
        address = f"10.198.{os.getpid() % 250}.1/24"
        subprocess.run(["ip", "link", "add", self._bridge, "type", "bridge"], check=True)
        try:
            subprocess.run(["ip", "address", "add", address, "dev", self._bridge], check=True)
            yield
        finally:
            subprocess.run(["ip", "link", "delete", self._bridge], check=True)

    def _answers(self, daemon: subprocess.Popen[bytes]) -> bool:
        assert daemon.poll() is None, (self._directory / "dockerd.log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(self.host.removeprefix("unix://"))
            except OSError:
                return False
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(1024)


def skip_unless_possible() -> None:
    """A second engine needs the right to start one."""
    if shutil.which("dockerd") is None or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("no right to start a Docker engine here")
