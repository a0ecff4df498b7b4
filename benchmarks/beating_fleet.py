"""Many workers that only beat, in a process of its own: `python -m benchmarks.beating_fleet URL FILE SECONDS`.

FILE holds a JSON list of {"id", "credential", "gpus": [uuid…], "leases": [uuid…]}. Each worker keeps its connection and
beats once per interval, the fleet spread evenly over it, whatever the answers take: an open loop. Prints one JSON line.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from typing import Any
from urllib.parse import urlsplit

INTERVAL_SECONDS = 15.0
PATIENCE_SECONDS = 10.0


class BeatingWorker:
    """One worker's connection. Readings change with every beat, as those of real cards do."""

    def __init__(self, host: str, port: int, worker: dict[str, Any]) -> None:
        self._host, self._port = host, port
        self._worker = worker
        self._number = 0
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def beat(self) -> int:
        """Send one heartbeat; return the status (0: no answer)."""
        self._number += 1
        try:
            return await asyncio.wait_for(self._exchange(), PATIENCE_SECONDS)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
            self._close()
            return 0

    async def _exchange(self) -> int:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._host, self._port)
        assert self._reader is not None
        body = json.dumps(self._body()).encode()
        self._writer.write(
            f"POST /api/v1/workers/{self._worker['id']}/heartbeat HTTP/1.1\r\nHost: {self._host}:{self._port}\r\n"
            f"Authorization: Bearer {self._worker['credential']}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        length = next((int(line[15:]) for line in head.split("\r\n") if line.startswith("content-length:")), None)
        if length is None:
            raise ValueError("an answer without a length")
        await self._reader.readexactly(length)
        if "connection: close" in head:
            self._close()
        return int(head.split()[1])

    def _close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None

    def _body(self) -> dict[str, Any]:
        leases = self._worker["leases"]
        per_gpu = len(leases) // len(self._worker["gpus"])
        return {
            "session": 1,
            "beat": self._number,
            "accepting": True,
            "gpus": [
                {
                    "uuid": uuid,
                    "index": index,
                    "vendor": "NVIDIA",
                    "model": "NVIDIA GeForce RTX 4090",
                    "total_vram_mib": 24564,
                    "free_vram_mib": 7000 + random.randrange(200),
                    "ours": [
                        {"lease": lease, "mib": 8000} for lease in leases[index * per_gpu : (index + 1) * per_gpu]
                    ],
                    "foreign": [{"pid": 1812, "name": "Xorg", "mib": 300}],
                    "utilization_pct": random.randrange(100),
                    "temperature_c": 50 + random.randrange(30),
                    "power_w": 100 + random.randrange(300),
                    "compute_capability": "8.9",
                    "mig": False,
                    "healthy": True,
                    "simulated": False,
                }
                for index, uuid in enumerate(self._worker["gpus"])
            ],
            "disk": {"docker_root_free_mib": 181200 - self._number, "data_free_mib": 90100},
            "holds": [
                {
                    "lease": lease,
                    "state": "running",
                    "image_id": "sha256:" + "0a" * 32,
                    "container": lease,
                    "healthy": True,
                }
                for lease in leases
            ],
        }


async def beat_for(url: str, workers: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    """Let the fleet beat for so long; say how it went."""
    parts = urlsplit(url)
    fleet = [BeatingWorker(parts.hostname or "", parts.port or 80, worker) for worker in workers]
    began, statuses, milliseconds = time.monotonic(), Counter[int](), []

    async def live(number: int, worker: BeatingWorker) -> None:
        due = began + INTERVAL_SECONDS * number / len(fleet)
        while due < began + seconds:
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            sent = time.monotonic()
            statuses[await worker.beat()] += 1
            milliseconds.append((time.monotonic() - sent) * 1000)
            due += INTERVAL_SECONDS

    await asyncio.gather(*(live(number, worker) for number, worker in enumerate(fleet)))
    ordered = sorted(milliseconds)
    return {
        "statuses": dict(statuses),
        "p50_ms": round(ordered[len(ordered) // 2], 1),
        "p95_ms": round(ordered[int(len(ordered) * 0.95)], 1),
    }


def main() -> None:
    url, file, seconds = sys.argv[1:]
    with open(file, encoding="utf-8") as workers:
        told = asyncio.run(beat_for(url, json.load(workers), float(seconds)))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
