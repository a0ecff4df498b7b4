"""What a worker's source holds besides its own commit: submodules and Git LFS, by the lease's token, from here only.

The worker's own fetch, with real git and git-lfs, against the data plane's real git.
"""

from __future__ import annotations

import hashlib
import json
import threading
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from gpu_worker.errors import JobFailed
from gpu_worker.protocol import Claim
from gpu_worker.source import SourceFetcher
from gpu_worker.source_limits import SourceLimits
from jobs.tokens import source_token
from spaces.forge.local import repository_directory
from spaces.forge.local_writes import find_repository
from spaces.models import LocalCollaborator, LocalRepository
from tests.gpu_worker.schemas import golden
from tests.spaces.git_server import Claimed, ask, basic
from tests.spaces.repositories import commit, make_repository
from tests.spaces.trees import Link, commit_tree

pytestmark = pytest.mark.django_db(transaction=True)

NEVER = threading.Event()
POINTED = b"the weights of a model\n" * 1000
OID = hashlib.sha256(POINTED).hexdigest()
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{OID}\nsize {len(POINTED)}\n"
ATTRIBUTES = "*.bin filter=lfs diff=lfs merge=lfs -text\n"


def claim_of(mine: Claimed, server: str) -> Claim:
    """The claim as the worker gets it, of a job of alice/app."""
    lease = mine.lease
    changes = {
        "id": str(lease.job_id),
        "lease": str(lease.pk),
        "owner": lease.job.owner,
        "repo": lease.job.repo,
        "revision": lease.job.revision,
        "clone_url": f"{server}/git/{lease.job.owner}/{lease.job.repo}.git",
        "source_token": source_token(lease),
    }
    return Claim.read({**golden("claim.response")["minimal"], **changes})


def fetch(claim: Claim, directory: Path, *, limits: SourceLimits | None = None) -> str:
    """Fetch as the worker does; what it wrote to the build log."""
    output: list[bytes] = []
    SourceFetcher(limits=limits).fetch(claim, directory, output=output.append, cancel=NEVER)
    return b"".join(output).decode()


def refusal(claim: Claim, directory: Path, *, limits: SourceLimits | None = None) -> tuple[str, str]:
    """Fetch what cannot be fetched; the reason and the sentence."""
    with pytest.raises(JobFailed) as failure:
        fetch(claim, directory, limits=limits)
    return failure.value.reason, failure.value.detail


def gitmodules(path: str, url: str, more: str = "") -> str:
    return f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n{more}'


@pytest.fixture
def app(claimed: Callable[..., Claimed]) -> Callable[..., Claimed]:
    """Makes a job of alice/app (private) whose tree is what is given; submodules are Links."""

    def make(**tree: object) -> Claimed:
        row = make_repository("alice/app", files=None, visibility="private")
        commit_tree(row, {"app.py": "print()\n", **{name.replace("__", "."): what for name, what in tree.items()}})
        return claimed("alice/app", repository=row)

    return make


def keep_lfs(row: LocalRepository, content: bytes = POINTED) -> None:
    """Put an object where `git lfs push` to the repository's path puts it."""
    oid = hashlib.sha256(content).hexdigest()
    file = repository_directory(row.pk) / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    file.parent.mkdir(parents=True)
    file.write_bytes(content)


# --- submodules ------------------------------------------------------------------------------------------------------


def test_a_relative_submodule_of_the_same_owner_comes_along(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    library = make_repository("alice/library", files={"lib.py": "1\n"}, visibility="private")
    revision = commit(library, {"lib.py": "2\n"})
    commit(library, {"lib.py": "newer\n"})
    mine = app(**{"__gitmodules": gitmodules("libs/one", "../library"), "libs": {"one": Link(revision)}})

    log = fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/libs/one/lib.py").read_text() == "2\n"
    assert "Fetching the submodule libs/one from alice/library at " + revision in log
    assert not list(tmp_path.rglob(".git"))
    assert [one.name for one in tmp_path.iterdir() if one.name != "repositories"] == ["source"]


def test_a_submodule_of_a_submodule_is_found_from_where_it_stands(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    deep = commit(make_repository("bob/deep", files=None), {"deep.txt": "deep\n"})
    tree = {".gitmodules": gitmodules("deep", "../../bob/deep.git"), "deep": Link(deep)}
    library = commit_tree(make_repository("alice/library", files=None), tree)
    mine = app(**{"__gitmodules": gitmodules("lib", "../library"), "lib": Link(library)})

    fetch(claim_of(mine, server), tmp_path / "source")

    assert (tmp_path / "source/lib/deep/deep.txt").read_text() == "deep\n"


def test_a_submodule_from_elsewhere_is_refused_by_name(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    url = "https://alice:password@git.example/library.git?token=password"
    mine = app(**{"__gitmodules": gitmodules("libs/one", url), "libs": {"one": Link("1" * 40)}})

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "submodule_refused",
        "The submodule libs/one comes from https://git.example/library.git, which is no repository of this server. "
        "Only those can be submodules here, by a relative address like ../library.git.",
    )


@pytest.mark.parametrize(
    ("visibility", "readers", "writers", "opens"),
    [
        ("public", [], ["carol"], True),
        ("internal", [], ["carol"], True),
        ("private", [], [], False),  # alice herself may not
        ("private", ["alice"], [], True),
        ("private", ["alice"], ["carol"], False),  # carol may push to alice/app: she would get to see it
        ("private", ["alice", "carol"], ["carol"], True),
    ],
)
def test_another_repository_is_opened_if_all_who_may_push_here_may_read_it(
    server: str,
    app: Callable[..., Claimed],
    tmp_path: Path,
    visibility: str,
    readers: list[str],
    writers: list[str],
    opens: bool,
) -> None:
    library = make_repository("bob/library", files={"lib.py": "1\n"}, visibility=visibility)
    revision = commit(library, {"lib.py": "2\n"})
    mine = app(**{"__gitmodules": gitmodules("lib", "../../bob/library.git"), "lib": Link(revision)})
    people = {name: User.objects.get_or_create(username=name)[0] for name in ("alice", "bob", "carol")}
    for name in readers:
        LocalCollaborator.objects.create(repository=library, user=people[name], permission="read")
    for name in writers:
        LocalCollaborator.objects.create(
            repository=find_repository("alice", "app"), user=people[name], permission="write"
        )

    if opens:
        fetch(claim_of(mine, server), tmp_path / "source")
        assert (tmp_path / "source/lib/lib.py").read_text() == "2\n"
    else:
        assert refusal(claim_of(mine, server), tmp_path / "source") == (
            "submodule_refused",
            "The submodule lib cannot be read: bob/library is missing, or somebody may push to alice/app who may not "
            "read it.",
        )


def test_a_missing_submodule_looks_like_one_that_may_not_be_read(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = app(**{"__gitmodules": gitmodules("lib", "../nothing.git"), "lib": Link("1" * 40)})

    reason, sentence = refusal(claim_of(mine, server), tmp_path / "source")

    assert reason == "submodule_refused"
    assert "alice/nothing is missing, or somebody may push" in sentence


def test_a_submodule_s_commit_that_is_gone_is_named(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    newest = commit(make_repository("alice/library", files=None), {"a": "1"})
    mine = app(**{"__gitmodules": gitmodules("lib", "../library.git"), "lib": Link("1" * 40)})

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "commit_gone",
        f"Submodule lib: Commit {'1' * 40} no longer exists in alice/library; the newest is {newest}.",
    )


def test_submodules_without_end_are_cut(server: str, app: Callable[..., Claimed], tmp_path: Path) -> None:
    row = make_repository("alice/matryoshka", files={"a": "1"})
    revision = commit(row, {"a": "2"})
    for _ in range(8):
        revision = commit_tree(row, {".gitmodules": gitmodules("in", "../matryoshka.git"), "in": Link(revision)})
    mine = app(**{"__gitmodules": gitmodules("in", "../matryoshka.git"), "in": Link(revision)})

    assert refusal(claim_of(mine, server), tmp_path / "source") == (
        "submodule_refused",
        "Submodules are nested more than 5 deep at in/in/in/in/in/in.",
    )


def test_a_link_that_nobody_gave_an_address_stays_empty_and_is_told(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    unwanted = gitmodules("unwanted", "https://git.example/x.git", "\tupdate = none\n")
    mine = app(**{"__gitmodules": unwanted, "mistake": Link("1" * 40), "unwanted": Link("2" * 40)})

    log = fetch(claim_of(mine, server), tmp_path / "source")

    assert "The submodule mistake stays empty: .gitmodules has no address for it." in log
    assert "The submodule unwanted stays empty, as .gitmodules says (update = none)." in log
    assert list((tmp_path / "source/mistake").iterdir()) == []


def test_another_lease_s_id_with_my_token_opens_nothing(server: str, claimed: Callable[..., Claimed]) -> None:
    mine, other = claimed("alice/app"), claimed("bob/other", visibility="public")
    info = "/git/bob/other.git/info/refs?service=git-upload-pack"
    token = source_token(mine.lease)

    def status(user: object) -> int:
        return ask(server, "GET", info, authorization=basic(str(user), token))[0]

    assert status(mine.lease.pk) == 200
    assert {status(user) for user in (other.lease.pk, uuid.uuid4(), "lease", "", mine.lease.job_id)} == {401}


# --- Git LFS ---------------------------------------------------------------------------------------------------------


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


def test_the_batch_call_refuses_what_it_does_not_know(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    row = find_repository("alice", "app")
    keep_lfs(row)
    root, token = "/git/alice/app.git/info/lfs", basic("lease", source_token(mine.lease))

    def status(method: str, path: str, body: object = None, authorization: str | None = token) -> int:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return ask(server, method, f"{root}/{path}", authorization=authorization, body=sent)[0]

    objects = [{"oid": OID, "size": len(POINTED)}]
    assert status("POST", "objects/batch", {"operation": "download", "objects": objects}) == 200
    assert status("POST", "objects/batch", {"operation": "upload", "objects": objects}) == 403
    for nonsense in (
        b"{",
        b"[]",
        b"[" * 100_000,
        b"x" * 2_000_000,
        {"objects": [{"oid": "../../etc"}]},
        {"objects": 1},
    ):
        assert status("POST", "objects/batch", nonsense) == 422
    assert status("POST", "objects/batch", {"operation": "download", "objects": objects}, None) == 401
    assert status("GET", f"objects/{OID}") == 200
    assert status("HEAD", f"objects/{OID}") == 200
    assert status("GET", f"objects/{OID}", None, None) == 401
    assert status("GET", f"objects/{'0' * 64}") == 404
    for path in (f"objects/{OID[:-1]}", f"objects/{OID.upper()}", f"objects/../{OID}", "locks", "objects"):
        assert status("GET", path) == 404
    assert status("PUT", f"objects/{OID}") == 404
    assert status("POST", "locks/verify", {}) == 404


def test_an_object_is_opened_by_its_own_repository_only(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed("alice/app")
    keep_lfs(make_repository("alice/other", visibility="public"))

    got = ask(
        server,
        "GET",
        f"/git/alice/app.git/info/lfs/objects/{OID}",
        authorization=basic("lease", source_token(mine.lease)),
    )

    assert got[0] == 404
