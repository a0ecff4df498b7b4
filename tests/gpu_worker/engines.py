"""Docker engines of the tests' own: one that may be restarted, one whose disk is small, one that has GPUs to give.

Beside the machine's engine, each with its own socket, root, network and place in containerd, so that none of them and
none of two test runs takes anything from another.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

import pytest

from tests.gpu_worker.nvml import build_lister, build_nvml_stub
from tests.gpu_worker.worker import eventually

HOOK_SOURCE = Path(__file__).with_name("nvidia_hook.py")
_NUMBERS = itertools.count()


class OwnEngine:
    """An engine that runs while the ``with`` block lasts. *host* is its address, *root* where its images lie."""

    def __init__(self, directory: Path, *, told: Mapping[str, str] | None = None, **settings: object) -> None:
        """*directory*: its path must be short, for it is part of a socket's name. *told*: more variables for dockerd.
        *settings*: as in daemon.json, with underscores."""
        number = next(_NUMBERS)
        self.host = f"unix://{directory}/docker.sock"
        self.root = directory / "root"
        self._directory = directory
        self._told = dict(told or {})
        self._settings = {name.replace("_", "-"): value for name, value in settings.items()}
        self._bridge = f"own{os.getpid()}-{number}"
        self._address = f"10.{190 + number % 10}.{os.getpid() % 250}.1/24"
        self._daemon: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        # with "none", or without a name, an engine removes the bridge of the machine's own engine
        subprocess.run(["ip", "link", "add", self._bridge, "type", "bridge"], check=True)
        try:
            subprocess.run(["ip", "address", "add", self._address, "dev", self._bridge], check=True)
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        subprocess.run(["ip", "link", "delete", self._bridge], check=True)

    def start(self) -> None:
        directory, place = self._directory, f"openface-{self._bridge}"
        command = [
            "dockerd", f"--data-root={self.root}", f"--exec-root={directory}/exec",
            f"--pidfile={directory}/docker.pid", f"--host={self.host}", f"--bridge={self._bridge}",
            "--iptables=false", "--ip-masq=false", f"--config-file={directory}/daemon.json",
            f"--containerd-namespace={place}", f"--containerd-plugins-namespace={place}-plugins",
            "--shutdown-timeout=3",
        ]  # fmt: skip
        (directory / "daemon.json").write_text(json.dumps(self._settings))  # not the machine's own
        with open(directory / "dockerd.log", "ab") as log:
            self._daemon = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **self._told})
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
                asking.sendall(b"GET /_ping HTTP/1.0\r\n\r\n")
                return b" 200 " in asking.recv(1024)
            except OSError:
                return False  # not there yet


@contextlib.contextmanager
def small_engine(*, mib: int) -> Iterator[OwnEngine]:
    """One whose disk has so many MiB, in memory, so that a build can fill it."""
    skip_unless_possible()
    # not in the test's own directory, whose path is long
    with tempfile.TemporaryDirectory(prefix="small-") as place:
        engine = OwnEngine(Path(place))
        engine.root.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={mib}m", "tmpfs", str(engine.root)]
        if subprocess.run(mount, check=False).returncode != 0:
            pytest.skip("no right to mount a small disk here")
        try:
            with engine:
                yield engine
        finally:
            subprocess.run(["umount", "--lazy", str(engine.root)], check=True)


class GpuEngine(OwnEngine):
    """One that gives the GPUs of the stand-in driver to containers; the toolkit has to be there when it starts.

    *environment* is what a worker needs to find the engine and the driver.
    """

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
        super().__init__(
            directory,
            told={"PATH": f"{self.toolkit}/bin:{os.environ['PATH']}", "STUB_TOOLKIT": str(self.toolkit)},
            runtimes={"nvidia": {"path": f"{self.toolkit}/bin/nvidia-container-runtime"}},
            default_runtime="nvidia",
        )
        self.environment = {
            "DOCKER_HOST": self.host, "LD_LIBRARY_PATH": str(library), "STUB_NVML_FILE": str(self.driver),
        }  # fmt: skip

    def has(self, gpus: Sequence[str], *, driver: Sequence[str] | None = None) -> None:
        """These GPUs are there for containers, and (unless *driver* says others) for the driver of the machine."""
        (self.toolkit / "gpus.txt").write_text("".join(f"{line}\n" for line in gpus))
        self.driver.write_text("".join(f"{line}\n" for line in (gpus if driver is None else driver)))


def skip_unless_possible() -> None:
    """An engine of one's own needs the right to start one."""
    if shutil.which("dockerd") is None or shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("no right to start a Docker engine here")
