"""A Docker engine of a test's own, which may be restarted as that of a machine is by an update."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from pathlib import Path
from typing import Self

import pytest

from tests.gpu_worker.worker import eventually


class OwnEngine:
    """*host* is its address. Its network has a name of its own: without one it would take the machine's away."""

    def __init__(self, directory: Path, **settings: object) -> None:
        """*settings* as in daemon.json, with underscores."""
        self._settings = {name.replace("_", "-"): value for name, value in settings.items()}
        self.host = f"unix://{directory}/docker.sock"
        self._directory = directory
        self._bridge = f"own{os.getpid()}"
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        subprocess.run(["ip", "link", "add", self._bridge, "type", "bridge"], check=True)
        try:
            subprocess.run(["ip", "address", "add", "10.196.0.1/24", "dev", self._bridge], check=True)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        subprocess.run(["ip", "link", "delete", self._bridge], check=True)

    def start(self) -> None:
        directory = self._directory
        command = [
            "dockerd", f"--data-root={directory}/root", f"--exec-root={directory}/exec",
            f"--pidfile={directory}/docker.pid", f"--host={self.host}", f"--bridge={self._bridge}",
            "--iptables=false", "--ip-masq=false",  # and no address pool: with one, a second start removes docker0
            f"--config-file={directory}/daemon.json", "--containerd-namespace=own-engine",
            "--containerd-plugins-namespace=own-engine-plugins", "--shutdown-timeout=3",
        ]  # fmt: skip
        (directory / "daemon.json").write_text(json.dumps(self._settings))  # not the machine's own
        with open(directory / "dockerd.log", "ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log)
        eventually(self._answers, what="the engine")

    def stop(self) -> None:
        """As a service manager does: the engine ends its containers, then itself."""
        if self._daemon is not None:
            self._daemon.terminate()
            self._daemon.wait(30)

    def _answers(self) -> bool:
        assert self._daemon is not None
        assert self._daemon.poll() is None, (self._directory / "dockerd.log").read_text()[-2000:]
        with socket.socket(socket.AF_UNIX) as asking:
            try:
                asking.connect(self.host.removeprefix("unix://"))
            except OSError:
                return False
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(1024)


def skip_unless_possible() -> None:
    """An engine of one's own needs the right to start one."""
    if shutil.which("dockerd") is None or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("no right to start a Docker engine here")
