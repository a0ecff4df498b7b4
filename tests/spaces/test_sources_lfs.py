"""Git LFS objects of a worker's source: exactly those that stand for its files, whole, or a sentence that says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker import disk
from gpu_worker.source_limits import MIB, SourceLimits
from jobs.tokens import source_token
from spaces.forge.local_writes import find_repository
from tests.spaces.git_server import Claimed
from tests.spaces.repositories import commit, make_repository
from tests.spaces.trees import Link
from tests.spaces.worker_sources import (
    ATTRIBUTES,
    OID,
    POINTED,
    POINTER,
    claim_of,
    fetch,
    gitmodules,
    keep_lfs,
    pointer_to,
    refusal,
)

pytestmark = pytest.mark.django_db(transaction=True)


def test_objects_come_in_the_place_of_their_pointers(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    mine = app(**{"models": {".gitattributes": ATTRIBUTES, "a.bin": POINTER, "b.bin": "not in LFS after all\n"}})
    keep_lfs(find_repository("alice", "app"))

    log = fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/models/a.bin").read_bytes() == POINTED
    assert (tmp_path / "source/models/b.bin").read_text() == "not in LFS after all\n"
    assert "Fetching 1 Git LFS objects, 0.0 MiB" in log
    assert source_token(mine.lease) not in log
    assert {one.name for one in tmp_path.iterdir()} == {"source", "repositories"}


def test_a_submodule_s_objects_come_from_its_own_repository(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    library = make_repository("alice/library", files=None, visibility="private")
    revision = commit(library, {".gitattributes": ATTRIBUTES, "a.bin": POINTER})
    keep_lfs(library)
    mine = app(**{"__gitmodules": gitmodules("lib", "../library.git"), "lib": Link(revision)})

    fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/lib/a.bin").read_bytes() == POINTED


def test_a_pointer_that_tells_another_size_is_named_before_anything_comes(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": pointer_to(POINTED, told=len(POINTED) + 1)})
    keep_lfs(find_repository("alice", "app"))

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "source_failed",
        f"a.bin: its Git LFS pointer tells a size of {len(POINTED) + 1} bytes, and the object on the server has "
        f"{len(POINTED)}.",
    )


def test_no_room_is_made_for_what_a_pointer_only_claims(
    server: str, app: Callable[..., Claimed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk makes the worker remove old images, so whoever pushes a pointer must not be able to say it is."""
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": pointer_to(POINTED, told=40_000 * MIB)})
    monkeypatch.setattr(disk, "_free", lambda path: disk.RESERVE + 1 * MIB)

    assert refusal(claim_of(mine, server), tmp_path / "source")[0] == "lfs_object_missing"
    keep_lfs(find_repository("alice", "app"))
    assert refusal(claim_of(mine, server), tmp_path / "again")[0] == "source_failed"


def test_an_object_that_is_there_and_does_not_fit_is_a_full_disk(
    server: str, app: Callable[..., Claimed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = bytes(2 * MIB)
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": pointer_to(content)})
    keep_lfs(find_repository("alice", "app"), content)
    monkeypatch.setattr(disk, "_free", lambda path: disk.RESERVE + 1 * MIB)

    assert refusal(claim_of(mine, server), tmp_path / "source")[0] == "disk_full"


def test_a_pointer_that_no_attribute_mentions_stays_one_beside_others(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": POINTER, "example.txt": POINTER})
    keep_lfs(find_repository("alice", "app"))

    fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/a.bin").read_bytes() == POINTED
    assert (tmp_path / "source/example.txt").read_text() == POINTER


def test_more_than_was_counted_is_cut_where_it_arrives(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    """git-lfs brings the objects of all pointers of a commit, also of those that are none for git."""
    uncounted = bytes(3 * MIB)
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": POINTER, "example.txt": pointer_to(uncounted)})
    for content in (POINTED, uncounted):
        keep_lfs(find_repository("alice", "app"), content)

    assert refusal(claim_of(mine, server), tmp_path / "source", limits=SourceLimits(lfs_mib=2)) == (
        "source_too_large",
        "What arrives of the repository's Git LFS objects has more than 2 MiB; that is the limit of this worker.",
    )


def test_what_needs_an_extension_of_git_lfs_is_refused(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    extended = POINTER.replace("oid sha256", f"ext-0-case sha256:{'1' * 64}\noid sha256")
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": extended})
    keep_lfs(find_repository("alice", "app"))

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "source_failed",
        "a.bin needs an extension of Git LFS; workers have none.",
    )


def test_an_object_under_many_names_counts_as_often_as_it_is_written(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    big = POINTER.replace(f"size {len(POINTED)}", f"size {30_000 * 1024 * 1024}")
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": big, "b.bin": big})

    assert refusal(claim_of(mine, server), tmp_path / "source")[0] == "source_too_large"


def test_a_missing_object_is_named_by_its_path(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": POINTER, "b.bin": POINTER.replace(OID, "0" * 64)})
    keep_lfs(find_repository("alice", "app"))

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "lfs_object_missing",
        "b.bin: in Git LFS, but the server does not have the object (000000000000…, 0.0 MiB). "
        "Push it with git lfs push --all.",
    )


def test_an_lfsconfig_of_the_repository_sends_nobody_elsewhere(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    elsewhere = "[lfs]\n\turl = http://127.0.0.1:9/elsewhere\n\tfetchexclude = *\n"
    mine = app(**{"__gitattributes": ATTRIBUTES, "__lfsconfig": elsewhere, "a.bin": POINTER})
    keep_lfs(find_repository("alice", "app"))

    fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/a.bin").read_bytes() == POINTED


def test_without_git_lfs_the_first_file_is_named(
    server: str, app: Callable[..., Claimed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": POINTER})
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/git").symlink_to("/usr/bin/git")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "git_lfs_missing",
        "a.bin is kept in Git LFS, and this worker has no git-lfs.",
    )


def test_a_pointer_that_no_attribute_mentions_is_only_remarked(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = app(**{"docs": {"example.txt": POINTER}})

    log = fetch(claim_of(mine, server), tmp_path / "source")

    assert "docs/example.txt looks like a Git LFS pointer, but no .gitattributes says so: it is left as it is." in log
    assert (tmp_path / "source/docs/example.txt").read_text() == POINTER


def test_objects_above_the_limit_are_not_fetched(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    big = POINTER.replace(f"size {len(POINTED)}", "size 3000000")
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": big})

    assert refusal(claim_of(mine, server), tmp_path / "source", limits=SourceLimits(lfs_mib=2)) == (
        "source_too_large",
        "The repository's 1 Git LFS objects have more than 2 MiB; that is the limit of this worker.",
    )


def test_a_sentence_names_a_file_of_any_name_in_one_line(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = app(**{"__gitattributes": ATTRIBUTES, r'"caf\351\n.bin"': POINTER})

    reason, sentence = refusal(claim_of(mine, server), tmp_path / "source")

    assert reason == "lfs_object_missing"
    assert sentence.startswith(r'"caf\351\n.bin": in Git LFS, but the server does not have the object')


def test_whatever_git_lfs_takes_for_a_pointer_is_one(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    written = {
        "windows.bin": POINTER.replace("\n", "\r\n"),
        "blanks.bin": POINTER.replace("\n", "\n\n") + "  \n",
        "no-end.bin": POINTER.rstrip("\n"),
        "1023-bytes.bin": POINTER + " " * (1023 - len(POINTER)),
        "oldest.bin": POINTER.replace("https://git-lfs.github.com/spec/v1", "http://git-media.io/v/2"),
    }
    mine = app(**{"__gitattributes": ATTRIBUTES, **written})
    keep_lfs(find_repository("alice", "app"))

    fetch(claim_of(mine, server), tmp_path / "source")

    assert [name for name in written if (tmp_path / "source" / name).read_bytes() != POINTED] == []


def test_an_empty_object_is_an_empty_file(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    mine = app(**{"__gitattributes": ATTRIBUTES, "empty.bin": pointer_to(b""), "a.bin": POINTER})
    keep_lfs(find_repository("alice", "app"))
    keep_lfs(find_repository("alice", "app"), b"")

    fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/empty.bin").read_bytes() == b""
    assert (tmp_path / "source/a.bin").read_bytes() == POINTED


def test_what_only_looks_like_a_pointer_is_left_and_told_with_the_reason(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    alike = {
        "mark.bin": "\ufeff" + POINTER,
        "large.bin": POINTER + " " * (1024 - len(POINTER)),
        "blank.bin": POINTER.replace("\n", " \n"),
        "text.bin": "version 2 of my model\n" + "x" * 100,
        "notes.txt": "\ufeff" + POINTER,
    }
    mine = app(**{"__gitattributes": ATTRIBUTES, **alike})

    log = fetch(claim_of(mine, server), tmp_path / "source")

    remarks = [line for line in log.splitlines() if "looks like" in line]
    assert remarks == [
        "blank.bin looks like a Git LFS pointer, but its lines are not as git-lfs writes them: it is left as it is.",
        "large.bin looks like a Git LFS pointer, but it has 1024 bytes or more: it is left as it is.",
        "mark.bin looks like a Git LFS pointer, but it begins with a byte order mark: it is left as it is.",
    ]
    assert {name: (tmp_path / "source" / name).read_bytes().decode() for name in alike} == alike
