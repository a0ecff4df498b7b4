"""The local forge keeps the contract of all forges, and a few promises about its disk."""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from spaces.forge import get_forge
from spaces.forge.base import SYSTEM
from spaces.forge.errors import Conflict, Forbidden, TooLarge, Unavailable
from spaces.forge.git_commands import run_git
from spaces.forge.local import TREE_LIMIT, LocalForge, repository_directory
from spaces.forge.local_writes import commit_directory, create_repository, find_repository
from spaces.models import LocalCollaborator
from tests.spaces import repositories as real
from tests.spaces.forge_contract import FILES, ForgeContract, World
from tests.spaces.repositories import make_repository

pytestmark = pytest.mark.django_db


class LocalWorld(World):
    forge = LocalForge()

    def repository(
        self,
        full_name: str,
        *,
        files: Mapping[str, str | bytes] | None = FILES,
        topics: Iterable[str] = ("space",),
        visibility: str = "public",
    ) -> None:
        make_repository(full_name, files=files, topics=topics, visibility=visibility)

    def commit(self, full_name: str, files: Mapping[str, str | bytes]) -> str:
        return real.commit(full_name, files)

    def set_ref(self, full_name: str, ref: str, commit_id: str) -> None:
        real.set_ref(find_repository(*full_name.split("/")), ref, commit_id)

    def collaborator(self, full_name: str, user: User, permission: str) -> None:
        LocalCollaborator.objects.create(
            repository=find_repository(*full_name.split("/")), user=user, permission=permission
        )

    def rename(self, full_name: str, new_full_name: str) -> None:
        row = find_repository(*full_name.split("/"))
        row.owner, row.name = new_full_name.split("/")
        row.save()

    def delete(self, full_name: str) -> None:
        find_repository(*full_name.split("/")).delete()


class TestLocalForge(ForgeContract):
    @pytest.fixture
    def world(self) -> World:
        return LocalWorld()


def test_it_is_the_forge_where_none_is_configured() -> None:
    assert isinstance(get_forge(), LocalForge)


def test_repositories_lie_under_their_id_and_only_we_may_read_them(repositories: Path) -> None:
    row = make_repository("alice/app")

    assert [path.name for path in repositories.iterdir()] == [f"{row.pk}.git"]
    assert stat.S_IMODE(repositories.stat().st_mode) == 0o700


def test_two_names_that_differ_only_in_case_are_one() -> None:
    create_repository("alice", "App")

    with pytest.raises(Conflict):
        create_repository("ALICE", "aPP")


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "-x", "a..b", "x.git", "x.", "a b", "ü", "x" * 101])
def test_a_name_that_could_be_taken_for_a_path_or_an_option_is_refused(name: str, repositories: Path) -> None:
    with pytest.raises(Forbidden):
        create_repository("alice", name)
    with pytest.raises(Forbidden):
        create_repository(name, "app")

    assert not repositories.exists()


def test_files_of_an_earlier_database_never_show_up_under_a_new_repository(repositories: Path) -> None:
    # Given a repository whose id the database will hand out again
    first = make_repository("alice/secret", files={"secret.txt": "for alice alone"})
    next_id = first.pk + 1
    repository_directory(first.pk).rename(repository_directory(next_id))

    # When the id is given to somebody else
    second = make_repository("bob/new", files=None)

    # Then it is empty, and the old files are kept aside
    assert second.pk == next_id
    assert run_git(repository_directory(second.pk), ["for-each-ref"]) == b""
    assert len(list(repositories.glob(f"{next_id}.orphan-*/*/objects"))) == 1


def test_lost_files_are_said_to_be_lost_and_not_that_the_repository_is_empty(repositories: Path) -> None:
    row = make_repository("alice/app")
    repo = get_forge().get_repo("alice", "app", viewer=SYSTEM)
    repository_directory(row.pk).rename(repositories / "elsewhere")

    with pytest.raises(Unavailable, match="missing on the server"):
        get_forge().head(repo)


def test_a_directory_with_too_many_entries_is_too_large() -> None:
    make_repository("alice/big", files={f"f{number}": "" for number in range(TREE_LIMIT + 1)})
    repo = get_forge().get_repo("alice", "big", viewer=SYSTEM)

    with pytest.raises(TooLarge):
        get_forge().list_tree(repo, get_forge().head(repo).sha)


def test_a_symlink_is_shown_as_its_target_and_never_followed(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    (source / "link").symlink_to("/etc/passwd")
    row = create_repository("alice", "app")
    revision, _ = commit_directory(row, source, message="A link")
    repo = get_forge().get_repo("alice", "app", viewer=SYSTEM)

    assert get_forge().list_tree(repo, revision)[0].kind == "symlink"
    assert get_forge().read_file(repo, revision, "link", limit=100) == b"/etc/passwd"


def test_git_takes_nothing_from_the_caller_s_configuration(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # Given a configuration that would run a program for each commit read
    evil = tmp_path / "gitconfig"
    evil.write_text('[alias]\n log = "!touch ran"\n[core]\n pager = touch ran\n[init]\n defaultBranch = other\n')
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(evil))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.chdir(tmp_path)

    make_repository("alice/app")
    head = get_forge().head(get_forge().get_repo("alice", "app", viewer=SYSTEM))

    assert len(head.sha) == 40
    assert not (tmp_path / "ran").exists()


def test_a_git_that_hangs_is_ended_and_told_as_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nsleep 300 & wait\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    with pytest.raises(Unavailable) as caught:
        run_git(tmp_path, ["log"], timeout=0.2)

    assert caught.value.retry_after > 0


def test_output_beyond_the_limit_ends_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "bin" / "git"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\nyes\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")

    with pytest.raises(TooLarge):
        run_git(tmp_path, ["log"], limit=100_000)


def test_a_machine_without_git_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(Unavailable, match="git cannot be started"):
        run_git(tmp_path, ["log"])
