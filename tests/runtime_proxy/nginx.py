"""A real nginx in front of a data plane, with the configuration that the compose files come with."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tests.runtime_proxy.data_plane import DataPlane, until

EXAMPLE = Path(__file__).resolve().parents[2] / "compose" / "nginx.conf"
HOST = "run.openface.example"
PROXY = "127.0.0.2"  # where it calls from: another than the clients', so that only it is trusted


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextmanager
def in_front_of(data_plane: DataPlane, directory: Path) -> Iterator[DataPlane]:
    """Run the example, with addresses of this machine in place of its own; what it writes goes to the directory."""
    port = free_port()
    text = EXAMPLE.read_text(encoding="utf-8")
    text = text.replace("server web:8090", "server 127.0.0.1:9").replace(
        "server data:8091", f"server {data_plane.host}"
    )
    text = re.sub(r"listen 80;", f"listen 127.0.0.1:{port};", text)
    places = "".join(
        f"{kind}_temp_path {directory}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    text = text.replace("http {", f"http {{ access_log off; proxy_bind {PROXY}; {places}", 1)
    config = directory / "nginx.conf"
    config.write_text(f"daemon off; master_process off; pid {directory}/pid; error_log {directory}/error.log;\n" + text)
    program = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin") or "nginx"
    command = [program, "-e", str(directory / "error.log"), "-c", str(config)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until(lambda: process.poll() is not None or listens(port))
        assert process.poll() is None, (directory / "error.log").read_text()
        yield replace(data_plane, port=port)
        process.terminate()
        process.wait(10)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
