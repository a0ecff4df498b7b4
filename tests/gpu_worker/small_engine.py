"""A Docker engine of its own whose disk is small, so that a build can fill it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gpu_worker.worker import eventually


@contextlib.contextmanager
def small_engine(*, mib: int) -> Iterator[tuple[str, Path]]:
    """Start one on a disk of so many MiB in memory; its address, and where its disk is."""
    # not in the test's own directory: its path is too long for the name of a socket
    with tempfile.TemporaryDirectory(prefix="small-") as place, _engine(Path(place), mib=mib) as engine:
        yield engine


@contextlib.contextmanager
def _engine(directory: Path, *, mib: int) -> Iterator[tuple[str, Path]]:
    if shutil.which("dockerd") is None or os.geteuid() != 0:
        pytest.skip("no right to start a Docker engine here")
    root, bridge = directory / "root", f"small{os.getpid()}"
    root.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(root)], check=False).returncode != 0:
        pytest.skip("no right to mount a small disk here")
    address = f"unix://{directory}/docker.sock"
    settings = {
        "data-root": str(root),
        "exec-root": f"{directory}/exec",
        "pidfile": f"{directory}/docker.pid",
        "hosts": [address],
        "bridge": bridge,  # "none" would remove the bridge of this machine's engine
        "iptables": False,
        "ip-masq": False,
    }
    (directory / "daemon.json").write_text(json.dumps(settings))
    subprocess.run(["ip", "link", "add", bridge, "type", "bridge"], check=True)
    subprocess.run(["ip", "address", "add", "10.197.0.1/24", "dev", bridge], check=True)
    with open(directory / "dockerd.log", "wb") as log:
        command = [
            "dockerd", f"--config-file={directory}/daemon.json",
            "--containerd-namespace=openface-small", "--containerd-plugins-namespace=openface-small-plugins",
        ]  # fmt: skip
        daemon = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        eventually(lambda: _answers(address, daemon, directory), what="the engine")
        yield address, root
    finally:
        daemon.terminate()
        daemon.wait(30)
        subprocess.run(["ip", "link", "delete", bridge], check=True)
        subprocess.run(["umount", "--lazy", str(root)], check=True)


def _answers(address: str, daemon: subprocess.Popen[bytes], directory: Path) -> bool:
    assert daemon.poll() is None, (directory / "dockerd.log").read_text()[-2000:]
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(address.removeprefix("unix://"))
            asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
            return b" 200 " in asking.recv(1024)
        except OSError:
            return False  # not there yet
