"""A large upload through the data plane: it streams, so the processes on its way do not grow with it."""

from __future__ import annotations

import time
from collections.abc import Iterator

from benchmarks.measurement import Measurement, PeakRss, below, cpu_seconds, percentile
from tests.e2e.world import World, eventually

MIB = 1024 * 1024
SIZE_MIB = 100
RUNS = 3
APP = """
import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        self.answer(b"ready")
    def do_POST(self):
        left = total = int(self.headers["Content-Length"])
        while left:
            left -= len(self.rfile.read(min(left, 65536)))
        self.answer(str(total).encode())
    def answer(self, body):
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *args):
        pass
http.server.ThreadingHTTPServer(("", int(os.environ["PORT"])), Handler).serve_forever()
"""


def measure(world: World) -> list[Measurement]:
    """Send 100 MiB through both hops and watch the resident memory of each."""
    readme = "---\nsdk: docker\napp_file: app.py\n---\n"
    space = world.space("takes-uploads", {"README.md": readme, "app.py": APP})
    world.machine("bench-cpu")
    owner = world.portal("owner")
    owner.act(space, "start")
    world.wait_for_state(space, "running")
    url = f"{world.data}/run/{space}/"
    eventually(lambda: owner.session.get(url, timeout=10).text == "ready", "the app answers through the chain")
    _send(owner.session, url, MIB)  # warm: connections and buffers are there
    growths: dict[str, list[float]] = {"data": [], "bench-cpu": []}
    seconds, cpu = [], []
    for _ in range(RUNS):
        pids = {name: world.stack.supervisor.pid(name) or 0 for name in growths}
        before_cpu = cpu_seconds(pids["data"])
        with PeakRss(pids) as peak:
            began = time.monotonic()
            _send(owner.session, url, SIZE_MIB * MIB)
            seconds.append(time.monotonic() - began)
        cpu.append(cpu_seconds(pids["data"]) - before_cpu)
        for name, growth in peak.growth().items():
            growths[name].append(growth)
    owner.act(space, "stop")
    world.wait_for_state(space, "completed")
    return [
        below("upload_100mb_rss_growth_mib", max(growths["data"]), "MiB", 20),
        below("upload_100mb_gateway_rss_growth_mib", max(growths["bench-cpu"]), "MiB", 20),
        Measurement("upload_100mb_mib_per_s", round(SIZE_MIB / percentile(seconds, 0.5), 1), "MiB/s"),
        Measurement("upload_100mb_data_plane_cpu_s", round(percentile(cpu, 0.5), 3), "CPU s"),
    ]


def _send(session, url: str, size: int) -> None:  # type: ignore[no-untyped-def]  # a requests.Session
    def body() -> Iterator[bytes]:
        block = b"\0" * 65536
        for _ in range(size // len(block)):
            yield block

    answer = session.post(url, data=_Sized(body(), size), timeout=120)
    assert answer.text == str(size), f"the app received {answer.text} of {size} bytes"


class _Sized:
    """An iterator with a length, so that it is sent with Content-Length."""

    def __init__(self, blocks: Iterator[bytes], size: int) -> None:
        self._blocks = blocks
        self._size = size

    def __iter__(self) -> Iterator[bytes]:
        return self._blocks

    def __len__(self) -> int:
        return self._size
