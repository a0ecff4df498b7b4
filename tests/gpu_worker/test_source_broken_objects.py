"""git checks every object that a worker fetches: one that could lead a file astray is refused, an old habit is not."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from gpu_worker.errors import JobFailed
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.test_source import claim_of, fetch
from tests.gpu_worker.worker import make_repository

AUTHOR = b"author Alice <alice@example.org> 1700000000 +0000\ncommitter Alice <alice@example.org> 1700000000 +0000\n"


class Store:
    """The bare repository of alice/hello, into which any bytes can be written as objects."""

    def __init__(self, plane: ControlPlane) -> None:
        self.first = make_repository(plane.git_root, "hello", {"app.py": "1"})
        self._bare = plane.git_root / "alice" / "hello.git"
        self.blob = bytes.fromhex(self._git("rev-parse", f"{self.first}:app.py"))

    def write(self, kind: str, content: bytes) -> str:
        return self._git("hash-object", "-t", kind, "-w", "--literally", "--stdin", given=content)

    def commit(self, tree: bytes, *, author: bytes = AUTHOR) -> str:
        revision = self.write("commit", b"tree " + self.write("tree", tree).encode() + b"\n" + author + b"\nOdd\n")
        self._git("update-ref", "refs/heads/main", revision)
        return revision

    def _git(self, *arguments: str, given: bytes = b"") -> str:
        done = subprocess.run(
            ["git", f"--git-dir={self._bare}", *arguments], input=given, capture_output=True, check=True
        )
        return done.stdout.decode().strip()


@pytest.fixture
def store(plane: ControlPlane) -> Store:
    return Store(plane)


@pytest.mark.parametrize("problem", ["duplicateEntries", "hasDotgit", "hasDotdot"])
def test_a_tree_whose_names_lead_astray_is_refused(
    plane: ControlPlane, store: Store, tmp_path: Path, problem: str
) -> None:
    names = {"duplicateEntries": [b"app.py", b"app.py"], "hasDotgit": [b".git"], "hasDotdot": [b".."]}[problem]
    tree = b"".join(b"100644 " + name + b"\0" + store.blob for name in names)
    revision = store.commit(tree)

    with pytest.raises(JobFailed) as failure:
        fetch(claim_of(plane, "hello", revision), tmp_path / "source")

    assert failure.value.reason == "source_failed"
    assert failure.value.detail.startswith("alice/hello could not be fetched: git refuses its object ")
    assert problem in failure.value.detail
    assert not (tmp_path / "source/app.py").exists()


@pytest.mark.parametrize("habit", ["zeroPaddedFilemode", "missingSpaceBeforeDate", "badTimezone"])
def test_what_programs_of_long_ago_wrote_is_taken(
    plane: ControlPlane, store: Store, tmp_path: Path, habit: str
) -> None:
    plain = b"100644 app.py\0" + store.blob
    match habit:
        case "zeroPaddedFilemode":
            inner = bytes.fromhex(store.write("tree", plain))
            revision = store.commit(plain + b"040000 deep\0" + inner)
        case "missingSpaceBeforeDate":
            revision = store.commit(plain, author=AUTHOR.replace(b"> 17", b">17"))
        case _:
            revision = store.commit(plain, author=AUTHOR.replace(b"+0000", b"+051800"))

    log = fetch(claim_of(plane, "hello", revision), tmp_path / "source")

    assert "app.py" in os.listdir(tmp_path / "source")
    assert f"{habit}: " in log  # git did see it
