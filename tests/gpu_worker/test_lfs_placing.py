"""Git LFS objects take the place of their pointers, and nothing is ever written through a link (CVE-2025-26625)."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from gpu_worker.errors import JobFailed
from gpu_worker.lfs_placing import Pointer, place

CONTENT = b"the weights"
OID = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def objects(tmp_path: Path) -> Path:
    """Where git-lfs keeps what it fetched: one object."""
    file = tmp_path / "lfs/objects" / OID[:2] / OID[2:4] / OID
    file.parent.mkdir(parents=True)
    file.write_bytes(CONTENT)
    return tmp_path / "lfs/objects"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    (tmp_path / "tree").mkdir()
    return tmp_path / "tree"


def pointer(tree: Path, path: str, *, oid: str = OID, size: int = len(CONTENT)) -> Pointer:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_text("pointer")
    return Pointer(path, oid, size)


def test_an_object_of_many_names_is_put_in_each_place_and_keeps_each_mode(tree: Path, objects: Path) -> None:
    pointers = [pointer(tree, path) for path in ("a.bin", "deep/er/b.bin", "tool")]
    (tree / "tool").chmod(0o755)
    (tree / "a.bin").chmod(0o644)

    assert place(tree, objects, pointers) == []

    assert [(tree / one.path).read_bytes() for one in pointers] == [CONTENT] * 3
    assert [(tree / name).stat().st_mode & 0o777 for name in ("a.bin", "tool")] == [0o644, 0o755]
    assert [path for path in objects.rglob("*") if path.is_file()] == []


def test_an_object_that_is_missing_or_not_whole_leaves_its_pointers(tree: Path, objects: Path) -> None:
    missing, short = pointer(tree, "a.bin", oid="0" * 64), pointer(tree, "b.bin", size=len(CONTENT) + 1)

    assert place(tree, objects, [missing, short]) == [missing, short]

    assert (tree / "b.bin").read_text() == "pointer"


@pytest.mark.parametrize("kind", ["link", "link above", "link above within the tree", "hard link"])
def test_nothing_is_written_where_a_link_stands(kind: str, tree: Path, objects: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.bin").write_text("of somebody else")
    fine, bad = pointer(tree, "fine.bin"), pointer(tree, "models/a.bin")
    match kind:
        case "link":
            (tree / "models/a.bin").unlink()
            (tree / "models/a.bin").symlink_to(outside / "a.bin")
        case "link above" | "link above within the tree":
            (tree / "models").rename(tree / "moved")
            (tree / "models").symlink_to(outside if kind == "link above" else tree / "moved")
        case "hard link":
            (tree / "models/a.bin").unlink()
            os.link(outside / "a.bin", tree / "models/a.bin")

    with pytest.raises(JobFailed) as failure:
        place(tree, objects, [fine, bad])

    assert failure.value.reason == "source_failed"
    assert failure.value.detail == (
        "models/a.bin is kept in Git LFS, and a link stands in its place or above it. Nothing is written there."
    )
    assert (outside / "a.bin").read_text() == "of somebody else"
    assert (tree / "fine.bin").read_text() == "pointer"
