"""Git LFS objects of a worker's source: exactly those that stand for its files, whole, or a sentence that says why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.source_limits import SourceLimits
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


def test_a_pointer_that_tells_another_size_brings_nothing(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    lying = POINTER.replace(f"size {len(POINTED)}", f"size {len(POINTED) + 1}")
    mine = app(**{"__gitattributes": ATTRIBUTES, "a.bin": lying})
    keep_lfs(find_repository("alice", "app"))

    reason, detail = refusal(claim_of(mine, server), tmp_path / "source")

    assert reason in ("lfs_object_missing", "source_failed")
    assert "a.bin" in detail


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
