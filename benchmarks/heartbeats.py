"""A thousand workers beat: what it costs the web process and the database, and what people notice of it."""

from __future__ import annotations

import base64
import hashlib
import json
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import psycopg
import requests

from benchmarks.beating_fleet import INTERVAL_SECONDS
from benchmarks.measurement import Measurement, at_most, cpu_seconds, percentile
from tests.e2e.world import Portal, World

WORKERS, LEASES_EACH, GPUS_EACH = 1000, 4, 2
CORES = 2
QUIET_SECONDS = 10.0
LOOKS_PER_SECOND = 5  # of the person who uses the portal meanwhile
PAGES = ("/spaces/", "/spaces/owner/watched/")
SHARE_GOAL = 0.5
P95_GOAL_MS = 250.0
FAILED_MS = 60_000.0
REVISION = "0123456789abcdef0123456789abcdef01234567"


def measure(world: World) -> list[Measurement]:
    """Look at the portal without the fleet, and then while it beats."""
    world.space("watched")
    owner = world.portal("owner")
    workers = _enlist(world)
    _look(owner, 3)
    quiet = _look(owner, QUIET_SECONDS)
    roster = world.directory / "roster.json"
    roster.write_text(json.dumps(workers), encoding="utf-8")
    seconds = 3 * INTERVAL_SECONDS
    command = [sys.executable, "-m", "benchmarks.beating_fleet", world.web, str(roster), str(seconds)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as fleet:
        time.sleep(INTERVAL_SECONDS)  # each has beaten once before we measure
        web, postgres, began = _web_cpu(world), _postgres_cpu(world), time.monotonic()
        time.sleep(INTERVAL_SECONDS)  # each beats once; nobody looks
        wall = time.monotonic() - began
        web, postgres = _web_cpu(world) - web, _postgres_cpu(world) - postgres
        busy = _look(owner, INTERVAL_SECONDS - 1)
        told = json.loads(fleet.communicate()[0])
    answered = int(told["statuses"].get("200", 0))
    sent = sum(told["statuses"].values())
    online = world.rows("SELECT count(*) FROM workers_worker WHERE last_seen_at > now() - interval '60 s'")[0][0]
    _dismiss(world)
    quiet_p95, busy_p95 = percentile(quiet, 0.95), percentile(busy, 0.95)
    return [
        at_most("heartbeats_1000_workers_cpu_share", (web + postgres) / (wall * CORES), "of 2 cores", SHARE_GOAL),
        Measurement("heartbeats_1000_workers_web_cpu_share", round(web / (wall * CORES), 3), "of 2 cores"),
        Measurement("heartbeats_1000_workers_postgres_cpu_share", round(postgres / (wall * CORES), 3), "of 2 cores"),
        Measurement("heartbeats_per_s", round(sent / seconds, 1), "1/s"),
        Measurement("heartbeats_not_answered", sent - answered, "", "= 0", sent == answered),
        Measurement("heartbeat_ms_p95", told["p95_ms"], "ms"),
        Measurement("heartbeats_workers_online", online, "", f"= {WORKERS}", online == WORKERS),
        at_most("portal_ms_p95_during_heartbeats", busy_p95, "ms", P95_GOAL_MS),
        Measurement("portal_ms_p95_without_heartbeats", round(quiet_p95, 2), "ms"),
    ]


def _enlist(world: World) -> list[dict[str, Any]]:
    """Put the fleet with its running jobs into the database: enrolling it would measure something else."""
    workers = []
    with psycopg.connect(world.database_url) as database, database.cursor() as cursor:
        cursor.execute(
            """INSERT INTO jobs_requirement (kind, gpu_count, vram_mib, exclusive, features)
               VALUES ('gpu', 1, 8000, false, '{}') ON CONFLICT DO NOTHING RETURNING id"""
        )
        row = cursor.fetchone()
        assert row is not None
        requirement = row[0]
        for number in range(WORKERS):
            worker = uuid.uuid4()
            secret = base64.urlsafe_b64encode(hashlib.sha256(worker.bytes).digest()).rstrip(b"=").decode()
            cursor.execute(
                """INSERT INTO workers_worker (id, name, local, credential_hash, scheduling, scheduling_reason,
                     expected_online, session, beat, last_seen_at, registered_at, accepting, paused_reason,
                     gateway_url, gateway_proposed_url, gateway_fixed, gateway_status, gateway_detail, hostname,
                     version, executor, engine_id, features, max_gpu_jobs, max_cpu_jobs, capabilities, disk, doctor,
                     foreign_leases)
                   VALUES (%s, %s, false, %s, 'open', '', '', 1, 0, now(), now(), true, '', '', '', false, 'unknown',
                     '', 'bench', '0.1.0', 'docker', '', '{cpu,nvidia,cuda}', 4, 0, %s, '{}', '[]', '[]')""",
                (worker, f"bench{number}", hashlib.sha256(secret.encode()).hexdigest(), json.dumps(CAPABILITIES)),
            )
            gpus = [f"GPU-{uuid.uuid4()}" for _ in range(GPUS_EACH)]
            gpu_ids = []
            for index, gpu in enumerate(gpus):
                cursor.execute(
                    """INSERT INTO workers_gpu (worker_id, uuid, index, vendor, model, total_vram_mib, ours, "foreign",
                         doubts, compute_capability, mig, healthy, good_reports, error, simulated, present)
                       VALUES (%s, %s, %s, 'NVIDIA', 'NVIDIA GeForce RTX 4090', 24564, '[]', '[]', '[]', '8.9', false,
                         true, 3, '', false, true) RETURNING id""",
                    (worker, gpu, index),
                )
                gpu_ids += [row[0] for row in cursor.fetchall()]
            leases = []
            for place in range(LEASES_EACH):
                gpu_id = gpu_ids[place * GPUS_EACH // LEASES_EACH]
                leases.append(_running_job(cursor, worker, requirement, f"bench{number}-{place}", gpu_id))
            credential = f"ofw_{worker.hex}_{secret}"
            workers.append({"id": str(worker), "credential": credential, "gpus": gpus, "leases": leases})
        cursor.execute("ANALYZE")
    return workers


def _running_job(cursor: Any, worker: uuid.UUID, requirement: int, name: str, gpu_id: int) -> str:
    job, lease = uuid.uuid4(), uuid.uuid4()
    cursor.execute(
        """WITH space AS (
             INSERT INTO spaces_space (repository_id, owner, name, visibility, topics, title, emoji, color_from,
               color_to, short_description, sdk, head_revision, placement)
             VALUES (%(name)s, 'bench', %(name)s, 'private', '{space,gpu}', '', '', '', '', '', '', '', 'automatic')
             RETURNING id
           ), job AS (
             INSERT INTO jobs_job (id, kind, mode, space_id, replica, repository_id, owner, repo, revision,
               requirement_id, spec, state, reason_code, reason, stop_reason, attempts, worker_id, image_id,
               oom_killed, first_ran_at)
             SELECT %(job)s, 'space', 'service', space.id, 0, %(name)s, 'bench', %(name)s, %(revision)s,
               %(requirement)s, '{}', 'running', '', '', '', 1, %(worker)s, '', false, now() FROM space RETURNING id
           ), lease AS (
             INSERT INTO jobs_lease (id, job_id, worker_id, attempt, counted, session, idempotency_key, key_id,
               expires_at, accepted_through, unlisted_beats, log_incomplete)
             SELECT %(lease)s, job.id, %(worker)s, 1, true, 1, %(name)s, %(key)s, now() + interval '1 day', 3, 0, false
             FROM job RETURNING id
           )
           INSERT INTO jobs_reservation (lease_id, gpu_id, mib, exclusive)
           SELECT lease.id, %(gpu)s, 8000, false FROM lease""",
        {
            "name": name,
            "job": job,
            "lease": lease,
            "worker": worker,
            "requirement": requirement,
            "revision": REVISION,
            "key": "k1",
            "gpu": gpu_id,
        },
    )
    return str(lease)


def _dismiss(world: World) -> None:
    """Take the fleet out again, so that it is in no other benchmark's way."""
    with psycopg.connect(world.database_url) as database:
        for statement in (
            # Locks in the order of a heartbeat that may still be under way.
            "SELECT id FROM workers_worker WHERE hostname = 'bench' ORDER BY id FOR UPDATE",
            "DELETE FROM jobs_reservation WHERE lease_id IN (SELECT l.id FROM jobs_lease l JOIN jobs_job j ON j.id ="
            " l.job_id WHERE j.owner = 'bench')",
            "DELETE FROM jobs_jobevent WHERE job_id IN (SELECT id FROM jobs_job WHERE owner = 'bench')",
            "DELETE FROM jobs_lease WHERE job_id IN (SELECT id FROM jobs_job WHERE owner = 'bench')",
            "DELETE FROM jobs_job WHERE owner = 'bench'",
            "DELETE FROM spaces_space WHERE owner = 'bench'",
            "DELETE FROM workers_gpu WHERE worker_id IN (SELECT id FROM workers_worker WHERE hostname = 'bench')",
            "DELETE FROM workers_worker WHERE hostname = 'bench'",
        ):
            database.execute(statement)


def _look(person: Portal, seconds: float) -> list[float]:
    """Open pages of the portal at a steady pace; return the milliseconds of each. One that fails took for ever."""
    milliseconds: list[float] = []
    began = time.monotonic()
    while time.monotonic() < began + seconds:
        opened = time.monotonic()
        try:
            person.get(PAGES[len(milliseconds) % len(PAGES)]).raise_for_status()
            milliseconds.append((time.monotonic() - opened) * 1000)
        except requests.RequestException:
            milliseconds.append(FAILED_MS)
        time.sleep(max(0.0, began + len(milliseconds) / LOOKS_PER_SECOND - time.monotonic()))
    return milliseconds


def _web_cpu(world: World) -> float:
    return cpu_seconds(world.stack.supervisor.pid("web") or 0)


def _postgres_cpu(world: World) -> float:
    """CPU time of the whole server: its processes, and those that have ended since its start."""
    postgres = world.stack._postgres
    server = (postgres.pid() if postgres else None) or 0
    ticks = 0
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, fields = int(stat.parent.name), stat.read_text().rsplit(")", 1)[1].split()
        except (OSError, IndexError):
            continue
        if pid == server:
            ticks += sum(int(field) for field in fields[11:15])
        elif int(fields[1]) == server:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / 100


CAPABILITIES = {
    "name": "bench",
    "os": "Linux 6.1.0-28-amd64",
    "arch": "x86_64",
    "hostname": "bench",
    "worker_version": "0.1.0",
    "executor": "docker",
    "docker": {"available": True, "version": "20.10.24", "buildkit": True, "gpu_runtime": True},
    "driver_version": "550.54.14",
    "cuda_version": "12.4",
    "features": ["cpu", "nvidia", "cuda"],
    "max_jobs": {"gpu": 4, "cpu": 0},
    "gpu_count": 2,
    "disk": {"docker_root_free_mib": 181200, "data_free_mib": 90100},
}
