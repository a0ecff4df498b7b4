"""An app that prints as fast as it can, with a real engine: what that costs, and whether the worker is heard meanwhile.

Counted is what the app got rid of (the engine makes it wait when it cannot take more), what is kept of it, and the
processor time of the worker and of the engine.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import psycopg

from benchmarks.measurement import Measurement, cpu_seconds
from openface.demo.engine import Engine
from tests.e2e.world import Oddities, World
from tests.gpu_worker.images import container_files

LINES = 6_000_000
PATIENCE_SECONDS = 300.0
LOOK_SECONDS = 0.2
DOCKERFILE = f"""\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
CMD ["sh", "-c", "echo the first line; seq 1 {LINES}; echo the last line"]
"""


def measure(world: World) -> list[Measurement]:
    """Let a batch job print so many lines, and look at all who have to do with it until its end is told."""
    if shutil.which("docker") is None or subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
        return [Measurement("log_flood_lines_per_s", None, "lines/s (no container engine here)")]
    files = {"README.md": "---\nsdk: docker\n---\n", **container_files(Dockerfile=DOCKERFILE)}
    space = world.space("flood", files, topics="benchmark,cpu")
    machine = world.machine("flood", odd=Oddities(engine=Engine("docker", "", "")))
    worker, engine = world.stack.supervisor.pid(world.program(machine).name), _engine_pid()
    assert worker is not None
    with psycopg.connect(world.database_url, autocommit=True) as database:
        world.portal("owner").post(f"/spaces/{space}/start")
        world.wait_for_state(space, "running", seconds=PATIENCE_SECONDS)
        began, before = time.monotonic(), _processor(worker, engine)
        container, printing, silence, printed = _container(), 0.0, 0.0, None
        while world.state(space) not in ("completed", "failed"):
            assert time.monotonic() - began < PATIENCE_SECONDS, world.history(space)
            if printed is None and (printing := _printed_for(container)):
                printed, printing_took = _processor(worker, engine), time.monotonic() - began
            silence = max(
                silence, _one(database, "SELECT extract(epoch FROM now() - last_seen_at) FROM workers_worker")
            )
            time.sleep(LOOK_SECONDS)
        took, after = time.monotonic() - began, _processor(worker, engine)
        kept = _one(
            database,
            """SELECT sum(octet_length(c.text)) FROM jobs_logchunk c JOIN jobs_lease l ON l.id = c.lease_id
               JOIN jobs_job j ON j.id = l.job_id WHERE j.repo = 'flood' AND c.stream = 'run'""",
        )
        ends = [
            _one(
                database,
                """SELECT count(*) FROM jobs_logchunk c JOIN jobs_lease l ON l.id = c.lease_id
                   JOIN jobs_job j ON j.id = l.job_id
                   WHERE j.repo = 'flood' AND c.stream = 'run' AND strpos(c.text, %s) > 0""",
                line,
            )
            for line in ("the first line", "the last line")
        ]
    assert printed is not None, "its end was not seen"
    return [
        Measurement("log_flood_lines_per_s", round(LINES / printing), "lines/s"),
        Measurement("log_flood_worker_cores", round((printed[0] - before[0]) / printing_took, 2), "of one core"),
        Measurement("log_flood_engine_cores", round((printed[1] - before[1]) / printing_took, 2), "of one core"),
        Measurement("log_flood_worker_s_for_the_rest", round(after[0] - printed[0], 1), "CPU s"),
        Measurement("log_flood_kept_mib", round(kept / 1024**2, 1), "MiB"),
        Measurement("log_flood_first_and_last_line", sum(bool(end) for end in ends), "", "2", all(ends)),
        Measurement("log_flood_longest_silence_s", round(silence, 1), "s", "< 30 (two heartbeats)", silence < 30),
        Measurement("log_flood_seconds_to_the_end", round(took, 1), "s"),
    ]


def _processor(worker: int, engine: int | None) -> tuple[float, float]:
    return cpu_seconds(worker), cpu_seconds(engine) if engine else 0.0


def _one(database: psycopg.Connection[Any], sql: str, *parameters: object) -> float:
    row = database.execute(sql, parameters or None).fetchone()
    return float(row[0] or 0) if row else 0.0


def _container() -> str:
    command = ["docker", "ps", "--all", "--quiet", "--no-trunc", "--filter", "name=openface-flood", "--latest"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def _printed_for(container: str) -> float:
    """Seconds from its start to its end; 0 while it runs, and when it is gone."""
    command = [
        "docker",
        "inspect",
        "--format",
        "{{.State.Running}} {{.State.StartedAt}} {{.State.FinishedAt}}",
        container,
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    running, _, times = done.stdout.strip().partition(" ")
    if done.returncode != 0 or running != "false":
        return 0.0
    began, ended = (_seconds(moment) for moment in times.split())
    return max(0.0, ended - began)


def _seconds(moment: str) -> float:
    """Of a day, of an engine time; enough for a difference of minutes."""
    hours, minutes, seconds = moment.partition("T")[2].rstrip("Z").split(":")
    return int(hours) * 3600 + int(minutes) * 60 + float(seconds)


def _engine_pid() -> int | None:
    """The process of the engine, where it is on this machine and can be seen."""
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if (directory / "comm").read_text().strip() == "dockerd":
                return int(directory.name)
    return None
