"""From the press on Start to a running app whose image is there already, less what the app itself needs to boot.

A whole chain with a real engine: portal, claim, source, image, container, first answer, report. In turns with it, the
same image is started by a bare `docker run`, until it answers on its port: that is the app's own boot. What lies
between two looks of this benchmark (5 ms) is in both.
"""

from __future__ import annotations

import http.client
import shutil
import subprocess
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from statistics import median
from typing import Any

import docker
import psycopg

from benchmarks.measurement import Measurement, below, percentile
from openface.demo.engine import Engine
from tests.e2e.world import Oddities, World, eventually
from tests.gpu_worker.images import container_files

ROUNDS = 15
WARM_UP = 2
GOAL_SECONDS = 1.0
LOOK_SECONDS = 0.005
PATIENCE_SECONDS = 60.0
PORT = 7860


@dataclass(frozen=True)
class Start:
    """Seconds; *steps*: how long the job was in each state on its way."""

    pressed_to_running: float
    claimed_to_running: float
    steps: dict[str, float]


def measure(world: World) -> list[Measurement]:
    """Start in turns, and take the medians."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        return [Measurement("warm_start_overhead_s", None, "s (no container engine here)", f"< {GOAL_SECONDS:g}", None)]
    readme = "---\nsdk: docker\n---\n"
    space = world.space("warm", {"README.md": readme, **container_files()})
    world.machine("warm", odd=Oddities(engine=Engine("docker", "", "")))
    starts, boots = [], []
    engine: Any = docker.from_env()
    try:
        with psycopg.connect(world.database_url, autocommit=True) as database:
            image = _first(world, database, space)
            for number in range(WARM_UP + ROUNDS):
                for turn in (number, number + 1):  # who is second finds a warmer machine
                    if turn % 2:
                        boots.append(_bare(engine, image))
                    else:
                        starts.append(_start(world, database, space))
                        _stop(world, database, space)
    finally:
        engine.close()
    del starts[:WARM_UP], boots[:WARM_UP]
    boot = median(boots)
    overhead = [start.pressed_to_running - boot for start in starts]
    return [
        below("warm_start_overhead_s", median(overhead), "s", GOAL_SECONDS),
        Measurement("warm_start_overhead_s_p95", round(percentile(overhead, 0.95), 2), "s"),
        Measurement(
            "warm_start_overhead_from_claim_s", round(median(s.claimed_to_running for s in starts) - boot, 2), "s"
        ),
        Measurement("warm_start_bare_boot_s", round(boot, 2), "s"),
        *(
            Measurement(f"warm_start_{state}_s", round(median(start.steps[state] for start in starts), 3), "s")
            for state in starts[0].steps
        ),
    ]


def _first(world: World, database: psycopg.Connection[Any], space: str) -> str:
    """Build the image; its id."""
    world.portal("owner").post(f"/spaces/{space}/start")
    eventually(lambda: _newest(database, space)[1] == "running", "the first start")
    [(image,)] = database.execute("SELECT image_id FROM jobs_jobevent WHERE to_state = 'running'").fetchall()
    _stop(world, database, space)
    return str(image)


def _start(world: World, database: psycopg.Connection[Any], space: str) -> Start:
    owner = world.portal("owner")
    form = owner.prepare(f"/spaces/{space}/start")
    before = _newest(database, space)[0]
    pressed = time.time()
    owner.send(form)
    _until(lambda: _newest(database, space) != (before, "completed") and _newest(database, space)[1] == "running")
    rows = database.execute(
        "SELECT to_state, extract(epoch FROM at) FROM jobs_jobevent WHERE job_id = %s AND NOT ignored ORDER BY id",
        [_newest(database, space)[0]],
    ).fetchall()
    at = {str(state): float(moment) for state, moment in rows if state}
    moments = [at["leased"], at["building"], at["starting"], at["running"]]
    return Start(
        pressed_to_running=at["running"] - pressed,  # database and benchmark read the same clock
        claimed_to_running=at["running"] - at["leased"],
        steps={
            "queued": at["leased"] - pressed,
            **{
                state: after - since
                for state, since, after in zip(("leased", "building", "starting"), moments, moments[1:], strict=False)
            },
        },
    )


def _stop(world: World, database: psycopg.Connection[Any], space: str) -> None:
    """And wait until its worker says that nothing of it is left."""
    world.portal("owner").post(f"/spaces/{space}/stop")
    job = _newest(database, space)[0]
    _until(
        lambda: (
            database.execute("SELECT 1 FROM jobs_lease WHERE job_id = %s AND cleared_at IS NULL", [job]).fetchone()
            is None
        )
    )


def _newest(database: psycopg.Connection[Any], space: str) -> tuple[uuid.UUID, str]:
    row = database.execute(
        "SELECT id, state FROM jobs_job WHERE owner || '/' || repo = %s ORDER BY seq DESC LIMIT 1", [space]
    ).fetchone()
    assert row is not None, f"no job of {space}"
    return row[0], row[1]


def _bare(engine: Any, image: str) -> float:
    """Seconds from `docker run` to the app's first answer."""
    name = f"openface-bench-{uuid.uuid4().hex}"
    begun = time.monotonic()
    subprocess.run(
        ["docker", "run", "--detach", "--init", f"--name={name}", f"--env=PORT={PORT}", image],
        check=True, capture_output=True,
    )  # fmt: skip
    try:
        address = engine.containers.get(name).attrs["NetworkSettings"]["IPAddress"]
        _until(lambda: _answers(address))
        return time.monotonic() - begun
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], check=True, capture_output=True)


def _answers(address: str) -> bool:
    connection = http.client.HTTPConnection(address, PORT, timeout=2)
    with suppress(OSError, http.client.HTTPException):
        connection.request("GET", "/")
        return connection.getresponse().status < 500
    return False


def _until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(LOOK_SECONDS)
