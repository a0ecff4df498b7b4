"""From a press on Start to the job in the worker's hands. Whoever polls every few seconds waits half of that."""

from __future__ import annotations

import time

from benchmarks.measurement import Measurement, below, cpu_seconds, percentile
from benchmarks.plain_worker import PlainWorker
from tests.e2e.world import World, eventually

STARTS = 40
WARM_UP = 5
GOAL_MS = 100.0


def measure(world: World) -> list[Measurement]:
    """Press Start through the portal, and take the time until a worker that listens has the claim's answer."""
    # A batch job, so that no gateway has to be reachable.
    readme = {"README.md": "---\nsdk: docker\n---\n", "Dockerfile": "FROM scratch\n"}
    space = world.space("measured", readme, topics="benchmark,cpu")
    token = world.manage("issue_enrollment_token", "plain", "--local").strip()
    worker = PlainWorker(world.web, token, "plain")
    owner = world.portal("owner")
    worker.listen_and_claim()
    web = world.stack.supervisor.pid("web") or 0
    milliseconds, cpu = [], []
    for number in range(1, WARM_UP + STARTS + 1):
        form = owner.prepare(f"/spaces/{space}/start")
        cpu_before = cpu_seconds(web)
        pressed = time.monotonic()
        owner.send(form)
        eventually(lambda number=number: len(worker.claims) == number, "the job was delivered")  # type: ignore[misc]
        cpu.append((cpu_seconds(web) - cpu_before) * 1000)
        answered, job = worker.claims[-1]
        milliseconds.append((answered - pressed) * 1000)
        worker.report(
            job, {"kind": "running", "image_id": None, "gpus": []}, {"kind": "exited", "code": 0, "oom_killed": False}
        )
        worker.heartbeat([])
    world.manage("revoke", "plain")
    kept = milliseconds[WARM_UP:]
    return [
        below("start_to_delivered_ms_p50", percentile(kept, 0.5), "ms", GOAL_MS),
        Measurement("start_to_delivered_ms_p95", round(percentile(kept, 0.95), 2), "ms"),
        Measurement("start_to_delivered_web_cpu_ms_mean", round(sum(cpu) / len(cpu), 1), "CPU ms"),
    ]
