"""A source that is too large is refused before it is written, however small it looks on the wire."""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from gpu_worker import disk, source_limits
from gpu_worker.errors import JobFailed
from gpu_worker.git import Access, Git, Surroundings
from gpu_worker.source import SourceFetcher
from gpu_worker.source_limits import Budget, SourceLimits, Tree
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.test_source import claim_of
from tests.gpu_worker.worker import git, make_repository

MIB = 1024 * 1024


def refusal(plane: ControlPlane, directory: Path, revision: str, limits: SourceLimits) -> tuple[str, str]:
    """Fetch what is too large; the reason and the sentence. Nothing of it may be left."""
    with pytest.raises(JobFailed) as failure:
        SourceFetcher(limits=limits).fetch(
            claim_of(plane, "hello", revision), directory, output=lambda data: None, cancel=threading.Event()
        )
    assert list(directory.rglob("*")) == []
    assert not directory.with_name(directory.name + ".git").exists()
    return failure.value.reason, failure.value.detail


def test_too_many_bytes_are_refused_although_they_compress(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {"zeros": bytes(3 * MIB)})

    assert refusal(plane, tmp_path / "source", revision, SourceLimits(mib=2)) == (
        "source_too_large",
        "The repository's files have more than 2 MiB, Git LFS not counted; that is the limit of this worker.",
    )


def test_directories_inside_each_other_without_end_are_refused(plane: ControlPlane, tmp_path: Path) -> None:
    make_repository(plane.git_root, "hello", {"f": "x"})
    where = plane.git_root / "alice" / "hello.git"
    blob = git("rev-parse", "HEAD:f", directory=where).strip()
    git("update-index", "--add", "--cacheinfo", f"100644,{blob},{'a/' * 1900}f", directory=where)
    tree = git("write-tree", directory=where).strip()
    revision = git("commit-tree", "-m", "deep", tree, directory=where).strip()
    git("update-ref", "refs/heads/deep", revision, directory=where)

    assert refusal(plane, tmp_path / "source", revision, SourceLimits()) == (
        "source_too_large",
        "The repository has directories inside each other, more than 200 deep; that is the limit of this worker.",
    )


def test_submodules_count_as_files(tmp_path: Path) -> None:
    tree = Tree(Budget(SourceLimits(files=2)))
    line = b"160000 commit " + b"a" * 40 + b"       -\tlibrary-%d\0"

    with pytest.raises(JobFailed, match="limit of this worker"):
        tree.read(b"".join(line % number for number in range(3)))


def test_a_fetch_is_cut_when_more_arrives_than_may_be_kept(tmp_path: Path) -> None:
    around = Surroundings(output=lambda data: None, cancel=threading.Event(), started=None)
    arriving = Git(tmp_path / "tree", tmp_path / "git", Access("http://nowhere/a/b.git", "lease", "t"), around)
    watch = Budget(SourceLimits(mib=2)).watch(arriving)
    pack = tmp_path / "git" / "objects" / "pack" / "tmp_pack_x"
    pack.parent.mkdir(parents=True)
    pack.write_bytes(bytes(2 * MIB))
    watch()

    pack.write_bytes(bytes(2 * MIB + 1))
    with pytest.raises(JobFailed) as failure:
        watch()
    assert failure.value.detail == (
        "What git sends of the repository has more than 2 MiB; that is the limit of this worker."
    )


def test_too_many_files_are_refused(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {f"{n}.txt": str(n) for n in range(5)})

    assert refusal(plane, tmp_path / "source", revision, SourceLimits(files=4)) == (
        "source_too_large",
        "The repository has more than 4 files; that is the limit of this worker.",
    )


def nested(plane: ControlPlane, node: str) -> str:
    """The revision of a tree with ten names for ten names for … *node* (mode, kind and id), ten levels deep."""
    bare = plane.git_root / "alice" / "hello.git"
    for _ in range(10):
        tree = object_id(bare, "mktree", given="".join(f"{node}\tname-{n}\n" for n in range(10)))
        node = f"040000 tree {tree}"
    revision = git(
        "-c", "user.name=t", "-c", "user.email=t", f"--git-dir={bare}", "commit-tree", tree, "-m", "Boom"
    ).strip()
    git(f"--git-dir={bare}", "update-ref", "refs/heads/main", revision)
    return revision


def object_id(bare: Path, *arguments: str, given: str = "") -> str:
    done = subprocess.run(
        ["git", f"--git-dir={bare}", *arguments], input=given, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_a_tree_of_nested_copies_is_not_counted_to_its_end(plane: ControlPlane, tmp_path: Path) -> None:
    """A few kilobytes that would unfold to ten thousand million files."""
    make_repository(plane.git_root, "hello", {"app.py": "1"})
    blob = object_id(plane.git_root / "alice" / "hello.git", "hash-object", "-w", "--stdin", given="boo")

    reason, sentence = refusal(
        plane, tmp_path / "source", nested(plane, f"100644 blob {blob}"), SourceLimits(files=50_000)
    )

    assert (reason, sentence[:42]) == ("source_too_large", "The repository has more than 50000 files; ")


def test_a_tree_of_nested_directories_without_a_file_is_not_walked_to_its_end(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No file, so no limit of files: git would walk ten thousand million directories and list nothing."""
    monkeypatch.setattr(source_limits, "LIST_SECONDS", 1.0)
    make_repository(plane.git_root, "hello", {"app.py": "1"})
    empty = object_id(plane.git_root / "alice" / "hello.git", "mktree")

    assert refusal(plane, tmp_path / "source", nested(plane, f"040000 tree {empty}"), SourceLimits()) == (
        "source_too_large",
        "To list what the commit holds took longer than 1 s, the limit of this worker: it has too many directories.",
    )


def test_a_source_that_would_fill_the_disk_is_not_checked_out(
    plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    revision = make_repository(plane.git_root, "hello", {"zeros": bytes(3 * MIB)})
    monkeypatch.setattr(disk, "RESERVE", 1024**6)  # more than any disk has

    reason, sentence = refusal(plane, tmp_path / "source", revision, SourceLimits())

    assert reason == "disk_full"
    assert sentence.startswith("The source needs 0.0 GiB, and only ")


def test_links_that_leave_the_tree_stay_links(plane: ControlPlane, tmp_path: Path) -> None:
    make_repository(plane.git_root, "hello", {"app.py": "1"})
    work = plane.git_root / "work" / "hello"
    for name, target in (("passwd", "/etc/passwd"), ("up", "../../.."), ("loop", "loop")):
        (work / name).symlink_to(target)
    revision = make_repository(plane.git_root, "hello", {})

    source = tmp_path / "source"
    SourceFetcher().fetch(
        claim_of(plane, "hello", revision), source, output=lambda data: None, cancel=threading.Event()
    )

    assert {name: os.readlink(source / name) for name in ("passwd", "up", "loop")} == {
        "passwd": "/etc/passwd",
        "up": "../../..",
        "loop": "loop",
    }
