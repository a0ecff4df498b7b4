"""Submodules of a worker's source: by the lease's token, from here only, and only what may be read here."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from spaces.forge.local_writes import find_repository
from spaces.models import LocalCollaborator
from tests.spaces.git_server import Claimed
from tests.spaces.repositories import commit, make_repository
from tests.spaces.trees import Link, commit_tree
from tests.spaces.worker_sources import claim_of, fetch, gitmodules, refusal

pytestmark = pytest.mark.django_db(transaction=True)


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


def test_a_submodule_of_any_name_comes_along_and_writes_no_line_of_the_log(
    server: str, app: Callable[..., Claimed], tmp_path: Path
) -> None:
    revision = commit(make_repository("alice/library", files=None), {"lib.py": "1\n"})
    entry = '[submodule "x"]\n\tpath = "a\\nFetching b"\n\turl = ../library\n'
    mine = app(**{"__gitmodules": entry, r'"a\nFetching b"': Link(revision), r'"caf\351"': Link("1" * 40)})

    log = fetch(claim_of(mine, server), tmp_path / "source").splitlines()

    assert (tmp_path / "source/a\nFetching b/lib.py").read_text() == "1\n"
    assert rf'Fetching the submodule "a\nFetching b" from alice/library at {revision}' in log
    assert r'The submodule "caf\351" stays empty: .gitmodules has no address for it.' in log
    assert (tmp_path / "source/caf\udce9").is_dir()


@pytest.mark.parametrize("path", [r"a\n\033[1m", r"caf\351"])
def test_a_sentence_names_a_submodule_of_any_name_in_one_line(
    server: str, app: Callable[..., Claimed], tmp_path: Path, path: str
) -> None:
    name = path.encode().decode("unicode_escape").encode("latin-1")
    # git's own settings file knows fewer escapes than its lists, and takes these bytes as they are
    entry = b'[submodule "x"]\n\tpath = "' + name.replace(b"\n", b"\\n") + b'"\n\turl = https://git.example/x\n'
    mine = app(**{"__gitmodules": entry, f'"{path}"': Link("1" * 40)})

    reason, sentence = refusal(claim_of(mine, server), tmp_path / "source")

    assert reason == "submodule_refused"
    assert sentence.startswith(f'The submodule "{path}" comes from https://git.example/x, which is no repository')
