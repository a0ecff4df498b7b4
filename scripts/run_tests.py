#!/usr/bin/env python3
"""Run every check of the project and end with one line of counts.

    scripts/run_tests.py [SUITE…]     style, types, import rules, migrations, then the suites (default: all in tests/)
    scripts/run_tests.py --only-lint  the first part alone

Each step prints its seconds and its budget. A step over its budget is told, not failed: machines differ. A suite that
needs a container engine or a browser skips what it cannot do, unless OPENFACE_REQUIRE (docker,browser) insists.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections import Counter
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
BEGAN = time.monotonic()
TOOLS = Path(sys.executable).parent

# Seconds on a machine with two cores.
LINT_BUDGETS = {"ruff": 10, "ruff format": 10, "mypy": 150, "import rules": 20, "migrations": 20}
SUITE_BUDGETS = {
    "jobs": 180,
    "workers": 150,
    "spaces": 240,
    "runtime_proxy": 300,
    "gpu_worker": 1000,
    "protocol": 60,
    "openface": 150,
    "browser": 330,
    "e2e": 420,
    "e2e_fidelity": 90,
    "apps": 150,
    "chaos": 300,
}
OTHER_BUDGET = 120
# The schedules of faults compute on every core there is: nothing runs beside them, and they come first.
ALONE = "chaos"
# Suites that mostly wait, for containers and sockets: they run in this order beside the others, and what each says is
# shown when it has ended. Who has run all the others takes over what has not begun.
BESIDE = ("gpu_worker", "runtime_proxy", "apps")


@dataclass
class Step:
    name: str
    command: list[str]
    budget: int
    report: Path | None = None  # where pytest counts
    beside: bool = False


@dataclass
class Done:
    step: Step
    seconds: float
    status: int
    counts: Counter[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="*", help="names of directories in tests/")
    parser.add_argument("--only-lint", action="store_true")
    options = parser.parse_args()
    unknown = [name for name in options.suites if not (PROJECT / "tests" / name).is_dir()]
    if unknown:
        parser.error(f"there is no suite {', '.join(unknown)}; there are {', '.join(suites())}")

    with tempfile.TemporaryDirectory(prefix="openface-reports-") as reports:
        steps = lint_steps()
        if not options.only_lint:
            tell_what_is_missing()
            names = options.suites or suites()
            steps += [suite_step(name, Path(reports), beside=name in BESIDE and len(names) > 1) for name in names]
        return summarise(run_all(steps))


def lint_steps() -> list[Step]:
    commands = {
        "ruff": [str(TOOLS / "ruff"), "check", "."],
        "ruff format": [str(TOOLS / "ruff"), "format", "--check", "--quiet", "."],
        "mypy": [str(TOOLS / "mypy")],
        "import rules": [str(TOOLS / "lint-imports"), "--no-cache"],
        # It warns that it cannot ask a database what was applied. It need not.
        "migrations": [
            sys.executable,
            "-W",
            "ignore",
            "manage.py",
            "makemigrations",
            "--check",
            "--dry-run",
            "--skip-checks",
        ],
    }
    return [Step(name, command, LINT_BUDGETS[name]) for name, command in commands.items()]


def suites() -> list[str]:
    """Return the names of the directories in tests/ that hold tests, the quick ones first."""
    found = sorted({path.relative_to(PROJECT / "tests").parts[0] for path in PROJECT.glob("tests/*/**/test_*.py")})
    return sorted(found, key=lambda name: SUITE_BUDGETS.get(name, OTHER_BUDGET))


def suite_step(name: str, reports: Path, *, beside: bool) -> Step:
    report = reports / f"{name}.xml"
    command = [sys.executable, "-m", "pytest", f"tests/{name}", "-q", f"--junit-xml={report}", "--durations=5"]
    return Step(f"tests/{name}", command, SUITE_BUDGETS.get(name, OTHER_BUDGET), report, beside)


def run_all(steps: list[Step]) -> list[Done]:
    """Run the steps in order, those that may stand beside the others once the style is known to be right."""
    done: list[Done] = []
    with ThreadPoolExecutor(max_workers=1) as beside, tempfile.TemporaryDirectory(prefix="openface-output-") as place:
        waiting: list[tuple[Step, Future[Done], Path]] = []
        for step in sorted(steps, key=_turn):  # sorted() keeps the order
            if step.report and step.name != f"tests/{ALONE}" and not waiting:
                for other in sorted((each for each in steps if each.beside), key=_place_beside):
                    output = Path(place) / other.report.name if other.report else Path(place) / "output"
                    waiting.append((other, beside.submit(run, other, output), output))
            if not step.beside:
                done.append(run(step))
        begun: list[tuple[Future[Done], Path]] = []
        for step, future, output in waiting:
            if future.cancel():
                done.append(run(step))
            else:
                begun.append((future, output))
        for future, output in begun:
            ended = future.result()
            print(
                f"\n=== {ended.step.name}, which ran beside the others\n{output.read_text(errors='replace')}",
                flush=True,
            )
            done.append(ended)
    return done


def _turn(step: Step) -> int:
    """Style first, then what runs alone."""
    return 0 if step.report is None else 1 if step.name == f"tests/{ALONE}" else 2


def _place_beside(step: Step) -> int:
    return BESIDE.index(step.name.removeprefix("tests/"))


def run(step: Step, output: Path | None = None) -> Done:
    """Run one step; what it says goes to the terminal, or into *output*."""
    print(f"\n=== {step.name}" + (" begins beside the others" if output else ""), flush=True)
    # Neither a user's own settings nor an installation in this checkout may decide how a check ends.
    environment = {name: value for name, value in os.environ.items() if name not in ("SECRET_KEY", "DATABASE_URL_FILE")}
    environment.update(SECRET_KEY="for-checks-only", OPENFACE_STATE_DIR=str(PROJECT / ".openface-none"))
    began = time.monotonic()
    with open(output, "wb") if output else contextlib.nullcontext() as said:
        status = subprocess.run(
            step.command,
            cwd=PROJECT,
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT if said else None,
            env=environment,
            check=False,
        ).returncode
    seconds = time.monotonic() - began
    counts = count(step.report) if step.report else Counter({"passed" if status == 0 else "failed": 1})
    if status and not (counts["failed"] or counts["errors"]):
        counts["errors"] += 1  # it broke before it could count, or holds no test at all
    return Done(step, seconds, status, counts)


def count(report: Path) -> Counter[str]:
    counts: Counter[str] = Counter()
    try:
        for suite in ElementTree.parse(report).getroot().iter("testsuite"):
            failed, errors, skipped = (int(suite.get(name, 0)) for name in ("failures", "errors", "skipped"))
            counts.update(failed=failed, errors=errors, skipped=skipped)
            counts["passed"] += int(suite.get("tests", 0)) - failed - errors - skipped
    except (OSError, ElementTree.ParseError):
        counts["errors"] += 1
    return counts


def tell_what_is_missing() -> None:
    missing = []
    if not answers("docker", "info"):
        missing.append("no container engine answers: apt-get install docker.io, then start dockerd")
    if not any(shutil.which(name) for name in ("chromium", "chromium-browser", "google-chrome")):
        missing.append("no Chromium: apt-get install chromium fonts-noto-cjk")
    if not shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
        missing.append("no nginx: apt-get install nginx-light")
    if not shutil.which("git"):
        missing.append("no git: apt-get install git")
    for sentence in missing:
        print(f"note: {sentence} (tests that need it are skipped)", flush=True)


def answers(*command: str) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def summarise(results: list[Done]) -> int:
    print("\n=== seconds (budget)", flush=True)
    for done in results:
        verdict = "failed" if done.status else "ok"
        over = "  over its budget" if done.seconds > done.step.budget else ""
        print(f"{done.step.name:<22} {done.seconds:7.1f} ({done.step.budget})  {verdict}{over}")
    total: Counter[str] = sum((done.counts for done in results), Counter())
    failed = total["failed"] + total["errors"]
    skipped = f", {total['skipped']} skipped" if total["skipped"] else ""
    seconds = time.monotonic() - BEGAN
    amiss = total["skipped"] and bool(os.environ.get("OPENFACE_REQUIRE"))
    if amiss:
        print("Nothing may be skipped here: OPENFACE_REQUIRE is set. What is missing stands above.", flush=True)
    print(f"\n{total['passed']} passed, {failed} failed{skipped} in {seconds:.1f}s", flush=True)
    return 1 if failed or amiss or any(done.status for done in results) else 0


if __name__ == "__main__":
    sys.exit(main())
