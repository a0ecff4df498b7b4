"""The repositories of the apps, and what is fetched for them: Python's and Node's packages, once, into a cache.

The cache is `.venv-apps` in the checkout, or where OPENFACE_APPS_CACHE says; `make clean` removes it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PROJECT = Path(__file__).resolve().parents[2]
APPS = PROJECT / "fixtures" / "apps"
CACHE = Path(os.environ.get("OPENFACE_APPS_CACHE") or PROJECT / ".venv-apps")
FETCH_SECONDS = 300


def source(name: str, target: Path, *, requirements: str = "requirements.txt") -> Path:
    """Lay out the app's repository in *target*; return it. *requirements*: which of several lists of packages."""
    shutil.copytree(APPS / name, target)
    lists = [APPS / name / requirements, *(APPS / name).glob("*-[0-9].txt")]
    for listed in lists:
        (target / listed.name).unlink(missing_ok=True)
    if lists[0].exists():
        shutil.copy(lists[0], target / "requirements.txt")
    return target


def with_node_modules(target: Path) -> Path:
    """Add to a repository what its package-lock.json names, as `npm ci` finds it."""
    made = _once("npm", target / "package-lock.json", _npm_ci)
    shutil.copytree(made / "node_modules", target / "node_modules", symlinks=True)
    return target


def with_build(target: Path) -> Path:
    """Add to a repository what `npm run build` makes of it."""
    with_node_modules(target)
    _run(["npm", "run", "build"], target)
    shutil.rmtree(target / "node_modules")
    return target


def with_wheels(target: Path) -> Path:
    """Add to a repository the wheels that its requirements.txt names, so that a build needs no network."""
    made = _once("wheels", target / "requirements.txt", _download)
    shutil.copytree(made, target / "wheels")
    return target


def _once(kind: str, lock: Path, make) -> Path:
    """What *make* fetches for this list of packages: from the cache, where it is there and whole."""
    place = CACHE / kind / hashlib.sha256(lock.read_bytes()).hexdigest()[:20]
    if not place.exists():
        half = place.with_suffix(".half")
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        make(lock, half)
        half.rename(place)
    return place


def _npm_ci(lock: Path, place: Path) -> None:
    for name in ("package.json", "package-lock.json"):
        shutil.copy(lock.with_name(name), place)
    _run(["npm", "ci", "--no-audit", "--no-fund"], place)


def _download(lock: Path, place: Path) -> None:
    _run([sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:", "-d", ".", "-r", str(lock)], place)


def _run(command: list[str], directory: Path) -> None:
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, timeout=FETCH_SECONDS, check=False)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
