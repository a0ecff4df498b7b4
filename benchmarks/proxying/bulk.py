"""Large bodies: as fast as nginx carries them, and five gigabytes in the memory of a few."""

from __future__ import annotations

import socket
import time
from statistics import median

from benchmarks.measurement import Measurement, PeakRss, at_least, below
from benchmarks.proxying.stage import BIG_MIB, Missing, Stage, Way, in_turns, stage
from tests.e2e.world import World

SECONDS = 2.0
CONNECTIONS = 4
CONTESTANTS = ("nginx", "bare", "one", "chain")
RATIO_GOAL, RSS_GOAL_MIB = 0.6, 150.0
GIB = 1024**3
HUGE = 5 * GIB
PAUSE_SECONDS = 2.0


def measure(world: World) -> list[Measurement]:
    """Load bodies of 10 MiB in turns, then send 5 GiB up and down while one side pauses."""
    try:
        with stage(world) as there:
            rounds = in_turns("http_load", there.big, CONTESTANTS, connections=CONNECTIONS, seconds=SECONDS)
            huge = _huge(there)
    except Missing as missing:
        return [Measurement("bulk_mb_s_ratio_to_nginx", None, "", str(missing), ok=None)]

    def speed(name: str) -> list[float]:
        return [each[name]["mib"] / each[name]["seconds"] for each in rounds]

    def ratio(name: str) -> float:
        return median(mine / nginx for mine, nginx in zip(speed(name), speed("nginx"), strict=True))

    return [
        at_least("bulk_mb_s_ratio_to_nginx", ratio("one"), "", RATIO_GOAL),
        Measurement("bulk_chain_mb_s_ratio_to_nginx", round(ratio("chain"), 2), ""),
        Measurement("bulk_bare_mb_s_ratio_to_nginx", round(ratio("bare"), 2), ""),
        *(Measurement(f"bulk_{name}_mib_per_s", round(median(speed(name))), "MiB/s") for name in CONTESTANTS),
        Measurement("bulk_body_mib", BIG_MIB, "MiB"),
        *huge,
    ]


def _huge(there: Stage) -> list[Measurement]:
    way = there.raw["chain"]
    base = way.path.rpartition("/")[0]
    pids = {"data_plane": there.data_pid, "gateway": there.gateway_pid}
    found = []
    with PeakRss(pids) as peak:
        began = time.monotonic()
        _upload(way, f"{base}/slow/upload")
        up = time.monotonic() - began
        began = time.monotonic()
        _download(way, f"{base}/bytes/{HUGE}")
        down = time.monotonic() - began
    for name, highest in peak.highest().items():
        found.append(below(f"rss_mib_5gb_up_down_slow_{name}", highest, "MiB", RSS_GOAL_MIB))
    whole = max(peak.highest().values())
    return [
        below("rss_mib_5gb_up_down_slow", whole, "MiB", RSS_GOAL_MIB),
        *found,
        Measurement("chain_5gb_up_mib_per_s", round(HUGE / 1048576 / up), "MiB/s"),
        Measurement("chain_5gb_down_mib_per_s", round(HUGE / 1048576 / down), "MiB/s"),
    ]


def _upload(way: Way, path: str) -> None:
    """The app does not read for the first two seconds."""
    block = b"\0" * 1048576
    with socket.create_connection(("127.0.0.1", way.port), 300) as connection:
        head = (
            f"POST {path} HTTP/1.1\r\nHost: localhost:{way.port}\r\nContent-Length: {HUGE}\r\nConnection: close\r\n\r\n"
        )
        connection.sendall(head.encode())
        for _ in range(HUGE // len(block)):
            connection.sendall(block)
        answer = b""
        while piece := connection.recv(65536):
            answer += piece
    assert answer.endswith(b"\r\n\r\n%d" % HUGE), f"the app did not get all of it: {answer[-200:]!r}"


def _download(way: Way, path: str) -> None:
    """The browser does not read for the first two seconds."""
    space = memoryview(bytearray(1048576))
    with socket.create_connection(("127.0.0.1", way.port), 300) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost:{way.port}\r\nConnection: close\r\n\r\n".encode())
        time.sleep(PAUSE_SECONDS)
        got = 0
        while size := connection.recv_into(space):
            got += size
    assert HUGE < got < HUGE + 65536, f"{got} bytes came of {HUGE}"
