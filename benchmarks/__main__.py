"""Run the benchmarks and print one JSON object per line: {"name", "value", "unit", "goal", "ok"}; also in bench.json.

Exits with 0 whatever falls short: a slow machine is no defect. Names given as arguments choose which to run.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import (
    claims,
    cold_build,
    heartbeats,
    idle_worker,
    log_flood,
    start_latency,
    streams,
    upload,
    warm_start,
)
from benchmarks.measurement import Measurement
from benchmarks.proxying import bulk, requests_per_second, websockets
from tests.e2e.world import World

BENCHMARKS: dict[str, Callable[[World], list[Measurement]]] = {
    "start_latency": start_latency.measure,
    "upload": upload.measure,
    "streams": streams.measure,
    "claim_latency": claims.measure_latency,
    "claim_rate": claims.measure_rate,
    "heartbeats": heartbeats.measure,
    "idle_worker": idle_worker.measure,
    "cold_build": cold_build.measure,
    "warm_start": warm_start.measure,
    "log_flood": log_flood.measure,
    "proxy": requests_per_second.measure,
    "bulk": bulk.measure,
    "websockets": websockets.measure,
}
# The intervals that people get, not the scaled ones of the tests: what is fast here is fast by push, not by polling.
INTERVALS = {
    "OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS": "15",
    "OPENFACE_GPU_WORKER_STALE_SECONDS": "120",
    "OPENFACE_GPU_WORKER_LEASE_SECONDS": "90",
    "OPENFACE_GPU_WORKER_POLL_SECONDS": "15",
    "OPENFACE_KEEPER_SECONDS": "2",
    "OPENFACE_ALIVE_SECONDS": "5",
    "OPENFACE_WORKER_RATE": "10000/10000",
    "OPENFACE_HEARTBEAT_RATE": "10000/10000",
    "OPENFACE_ENROLL_PER_MINUTE": "10000",
    "OPENFACE_RUN_MAX_PER_VISITOR": "10000",
    "OPENFACE_RUN_MAX_CONNECTIONS_PER_ADDRESS": "10000",
}


@contextmanager
def installation() -> Iterator[World]:
    """A whole installation in a directory of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="openface-bench-") as directory:
        path = Path(directory)
        path.chmod(0o711)  # the database's account passes through it
        world = World(path, overrides=INTERVALS)
        try:
            world.up()
            yield world
        finally:
            world.down()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHMARKS)} (default: all)")
    names = parser.parse_args().names or list(BENCHMARKS)
    if unknown := [name for name in names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    results: list[Measurement] = []
    with installation() as world:
        for name in names:
            try:
                measured = BENCHMARKS[name](world)
            except Exception:  # one benchmark that breaks must not hide the others
                traceback.print_exc()
                print(world.log_tail(), file=sys.stderr)
                measured = [Measurement(name, None, "", "to run", ok=False)]
            for measurement in measured:
                print(json.dumps(measurement.as_row()), flush=True)
            results += measured
    rows = [json.dumps(measurement.as_row()) for measurement in results]
    Path("bench.json").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
