"""Schedules of faults, as many as you like: `make chaos N=10000 SEED=7`.

    python -m tests.chaos [--schedules N] [--seed S] [--http] [--processes P]

The same seed makes the same schedules. A failure is shrunk to few steps and prints its seed and the command that makes
it again. With --http the machines speak to a real web process.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import secrets
import subprocess
import sys
import tempfile

# Schedules per seed: a failure is made again by running so many at most.
BATCH = 50
HTTP_BATCH = 25
ENVIRONMENT = {
    "DJANGO_SETTINGS_MODULE": "openface.settings",
    "SECRET_KEY": "chaos-only-" + "k" * 50,
    "OPENFACE_LEASE_KEYS": "k1:" + "ab" * 32,
    "OPENFACE_ENCRYPTION_KEYS": "e1:" + "cd" * 32,
    "OPENFACE_GPU_WORKERS_ENABLED": "true",
    "OPENFACE_ALLOW_SIMULATED_GPUS": "true",
    "OPENFACE_LOG_LEVEL": "ERROR",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--schedules", type=int, default=1000, help="how many at least")
    parser.add_argument("--seed", type=int, help="the first batch's seed (default: drawn)")
    parser.add_argument("--http", action="store_true", help="against a real web process, with threads")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--steps", type=int, default=9, help="steps per schedule")
    parser.add_argument("--batch", type=int, help=f"schedules per seed (default: {BATCH}, over HTTP {HTTP_BATCH})")
    parser.add_argument("--no-shrink", action="store_true", help="show a failing schedule as it was drawn")
    parser.add_argument("--plant", help="plant a defect of planted.py first, to see that it is found")
    parser.add_argument("--stride", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.batch = options.batch or (HTTP_BATCH if options.http else BATCH)
    return run_here(options) if options.stride else run_all(options)


def run_here(options: argparse.Namespace) -> int:
    """A process of a run: the environment names its database, which holds empty tables."""
    import django

    django.setup()
    from tests.chaos.child import run
    from tests.chaos.planted import DEFECTS

    if options.plant:
        DEFECTS[options.plant]()
    return run(
        itertools.count(options.seed, options.stride),
        schedules=options.schedules,
        over_http=options.http,
        steps=options.steps,
        batch=options.batch,
        shrink=not options.no_shrink,
    )


def run_all(options: argparse.Namespace) -> int:
    """Divide the batches among processes, each with its own copy of one migrated database."""
    from tests.chaos.installation import PROJECT, copy_database, server

    first = secrets.randbelow(10**6) if options.seed is None else options.seed
    processes = max(1, min(options.processes, options.schedules // options.batch))
    print(f"{options.schedules} schedules from seed {first} in {processes} processes", flush=True)
    with server() as url, tempfile.TemporaryDirectory(prefix="openface-chaos-") as state:
        environment = {**os.environ, **ENVIRONMENT, "OPENFACE_STATE_DIR": state}
        prepare = [sys.executable, "manage.py", "migrate", "--verbosity", "0", "--skip-checks"]
        subprocess.run(prepare, cwd=PROJECT, env={**environment, "DATABASE_URL": url}, check=True)
        children = []
        for number in range(processes):
            share = -(-options.schedules // processes)
            database = copy_database(url, url.rsplit("/", 1)[1], f"chaos_{number}")
            command = [sys.executable, "-m", "tests.chaos", *_passed_on(options)]
            command += ["--seed", str(first + number), "--stride", str(processes), "--schedules", str(share)]
            environment |= {"DATABASE_URL": database}
            children.append(
                subprocess.Popen(command, cwd=PROJECT, env=dict(environment), stdout=subprocess.PIPE, text=True)
            )
        results = [_result(child) for child in children]
    return _report(results, options)


def _passed_on(options: argparse.Namespace) -> list[str]:
    passed = ["--steps", str(options.steps), "--batch", str(options.batch)]
    passed += ["--http"] if options.http else []
    passed += ["--no-shrink"] if options.no_shrink else []
    return passed + (["--plant", options.plant] if options.plant else [])


def _result(child: subprocess.Popen[str]) -> dict[str, object]:
    lines = child.communicate()[0].splitlines()
    if not lines:
        raise SystemExit("a process of the run broke before it could count; its error is above")
    counts: dict[str, object] = json.loads(lines[-1])
    return counts


def _report(results: list[dict[str, object]], options: argparse.Namespace) -> int:
    failed = [seed for result in results for seed in result["failed_seeds"]]  # type: ignore[attr-defined]  # a list
    for seed in failed:
        more = " HTTP=1" if options.http else ""
        print(f"make it again: make chaos SEED={seed} N={options.batch}{more}", flush=True)
    total = {
        "schedules": sum(int(str(result["schedules"])) for result in results),
        "steps": sum(int(str(result["steps"])) for result in results),
        "seconds": max(float(str(result["seconds"])) for result in results),
        "failed_seeds": failed,
    }
    print(json.dumps(total), flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
