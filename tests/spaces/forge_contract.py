"""What every forge behind the interface must do. A backend's test file subclasses `ForgeContract` and brings a `world`.

The world makes repositories and people on the backend's own ground; what is asked and expected is the same for all.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing
from typing import Any

import pytest
from django.contrib.auth.models import AnonymousUser, User

from spaces.forge.base import ANONYMOUS, SYSTEM, Forge, GitRequest, Permission, Repository, Viewer
from spaces.forge.errors import EmptyRepository, NotFound, TooLarge

FILES = {"README.md": "# Hello\n", "app.py": "print('hello')\n", "lib/deep/file.txt": "deep\n"}


class World(ABC):
    """A backend with something in it."""

    forge: Forge

    @abstractmethod
    def repository(
        self,
        full_name: str,
        *,
        files: Mapping[str, str | bytes] | None = FILES,
        topics: Iterable[str] = ("space",),
        visibility: str = "public",
    ) -> None:
        """Create a repository with one commit of these files, or with none (None)."""

    @abstractmethod
    def commit(self, full_name: str, files: Mapping[str, str | bytes]) -> str:
        """Make the default branch consist of these files; return the new commit."""

    @abstractmethod
    def set_ref(self, full_name: str, ref: str, commit_id: str) -> None:
        """Point a branch or tag at a commit, forced."""

    @abstractmethod
    def collaborator(self, full_name: str, user: User, permission: str) -> None:
        """Give a user 'read', 'write' or 'admin'."""

    @abstractmethod
    def rename(self, full_name: str, new_full_name: str) -> None: ...

    @abstractmethod
    def delete(self, full_name: str) -> None: ...

    def get(self, full_name: str, viewer: Viewer = SYSTEM) -> Repository:
        return self.forge.get_repo(*full_name.split("/"), viewer=viewer)


@pytest.mark.django_db
class ForgeContract:
    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError("the backend's test file brings its world")

    # --- finding -----------------------------------------------------------------------------------------------

    def test_a_repository_is_found_in_any_spelling_of_its_case_and_keeps_its_own(self, world: World) -> None:
        world.repository("Alice/My-App")

        found = world.get("aLICE/mY-aPP")

        assert (found.owner, found.name) == ("Alice", "My-App")

    def test_the_id_survives_a_rename(self, world: World) -> None:
        world.repository("alice/before")
        repo = world.get("alice/before")

        world.rename("alice/before", "alice/after")

        assert world.forge.get_repo_by_id(repo.id, viewer=SYSTEM).full_name == "alice/after"
        with pytest.raises(NotFound):
            world.get("alice/before")

    @pytest.mark.parametrize("name", ["", "..", ".", "a/b", "a\0b", "ä", "x" * 300, "-c", "a b", "a.git", "%2e%2e"])
    def test_an_impossible_name_is_simply_not_found(self, world: World, name: str) -> None:
        for owner, repo in ((name, "app"), ("alice", name)):
            with pytest.raises(NotFound):
                world.forge.get_repo(owner, repo, viewer=SYSTEM)

    @pytest.mark.parametrize("repository_id", ["", "0", "-1", "999999", "abc", "1; drop", "9" * 40, "1\0", "٣"])
    def test_an_impossible_id_is_simply_not_found(self, world: World, repository_id: str) -> None:
        with pytest.raises(NotFound):
            world.forge.get_repo_by_id(repository_id, viewer=SYSTEM)

    def test_a_deleted_repository_is_not_found(self, world: World) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")

        world.delete("alice/app")

        with pytest.raises(NotFound):
            world.forge.get_repo_by_id(repo.id, viewer=SYSTEM)

    # --- who may -----------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("visibility", "person", "expected"),
        [
            ("public", "anonymous", Permission.READ),
            ("public", "stranger", Permission.READ),
            ("public", "owner", Permission.ADMIN),
            ("internal", "anonymous", Permission.NONE),
            ("internal", "stranger", Permission.READ),
            ("internal", "owner", Permission.ADMIN),
            ("private", "anonymous", Permission.NONE),
            ("private", "stranger", Permission.NONE),
            ("private", "inactive", Permission.NONE),
            ("private", "reader", Permission.READ),
            ("private", "writer", Permission.WRITE),
            ("private", "admin", Permission.ADMIN),
            ("private", "owner", Permission.ADMIN),
            ("private", "operator", Permission.ADMIN),
        ],
    )
    def test_permission_follows_visibility_and_collaboration(
        self, world: World, visibility: str, person: str, expected: Permission
    ) -> None:
        world.repository("Alice/app", visibility=visibility)
        users: dict[str, Any] = {
            "anonymous": AnonymousUser(),
            "owner": User.objects.create_user("alice"),
            "stranger": User.objects.create_user("carol"),
            "operator": User.objects.create_user("otto", is_superuser=True),
            "inactive": User.objects.create_user("gone", is_active=False),
        }
        for name, permission in (("reader", "read"), ("writer", "write"), ("admin", "admin"), ("inactive", "admin")):
            users.setdefault(name, User.objects.create_user(name) if name != "inactive" else users["inactive"])
            world.collaborator("Alice/app", users[name], permission)
        viewer = world.forge.identity(users[person])

        if expected is Permission.NONE:
            with pytest.raises(NotFound):
                world.get("alice/app", viewer)
        else:
            assert world.get("alice/app", viewer).permission is expected

    def test_missing_and_not_yours_cannot_be_told_apart(self, world: World) -> None:
        world.repository("alice/secret", visibility="private")

        answers = []
        for name in ("secret", "missing"):
            with pytest.raises(NotFound) as caught:
                world.forge.get_repo("alice", name, viewer=ANONYMOUS)
            answers.append((type(caught.value), str(caught.value)))

        assert answers[0] == answers[1]

    def test_search_finds_by_topic_what_the_viewer_may_read(self, world: World) -> None:
        world.repository("alice/open", topics=["space", "gpu"])
        world.repository("alice/inside", topics=["space"], visibility="internal")
        world.repository("alice/secret", topics=["space"], visibility="private")
        world.repository("alice/shared", topics=["space"], visibility="private")
        world.repository("alice/library", topics=["python"])
        bob = User.objects.create_user("bob")
        world.collaborator("alice/shared", bob, "read")

        def found(viewer: Viewer) -> list[str]:
            return [repo.name for repo in world.forge.search("space", viewer=viewer)]

        assert found(ANONYMOUS) == ["open"]
        assert found(world.forge.identity(bob)) == ["inside", "open", "shared"]
        assert found(world.forge.identity(User.objects.create_user("ALICE"))) == ["inside", "open", "secret", "shared"]
        assert found(SYSTEM) == ["inside", "open", "secret", "shared"]
        assert [repo.name for repo in world.forge.search("gpu", viewer=SYSTEM)] == ["open"]

    # --- content -----------------------------------------------------------------------------------------------

    def test_head_is_the_newest_commit_of_the_default_branch(self, world: World) -> None:
        world.repository("alice/app")
        newest = world.commit("alice/app", {"README.md": "# New\n"})

        head = world.forge.head(world.get("alice/app"))

        assert head.sha == newest
        assert head.committed_at.tzinfo is not None
        assert head.subject

    def test_a_repository_without_a_commit_is_empty_rather_than_missing(self, world: World) -> None:
        world.repository("alice/empty", files=None)

        with pytest.raises(EmptyRepository):
            world.forge.head(world.get("alice/empty"))

    def test_a_commit_of_a_branch_or_tag_is_known(self, world: World) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")
        first = world.forge.head(repo).sha
        second = world.commit("alice/app", {"README.md": "2\n"})
        world.set_ref("alice/app", "refs/tags/v2", second)
        world.set_ref("alice/app", "refs/heads/main", first)

        assert world.forge.get_commit(repo, first).sha == first
        assert world.forge.get_commit(repo, second).sha == second

    def test_a_commit_that_was_forced_away_is_gone_although_git_still_has_it(self, world: World) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")
        first = world.forge.head(repo).sha
        second = world.commit("alice/app", {"README.md": "a secret that was pushed by mistake\n"})

        world.set_ref("alice/app", "refs/heads/main", first)

        with pytest.raises(NotFound):
            world.forge.get_commit(repo, second)

    @pytest.mark.parametrize(
        "revision",
        ["", "main", "HEAD", "0" * 40, "abc1234", "--output=x", "refs/heads/main", "A" * 40, "0" * 40 + "\n"],
    )
    def test_only_a_full_id_names_a_commit(self, world: World, revision: str) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")

        with pytest.raises(NotFound):
            world.forge.get_commit(repo, revision)
        with pytest.raises(NotFound):
            world.forge.read_file(repo, revision, "README.md", limit=100)
        with pytest.raises(NotFound):
            world.forge.list_tree(repo, revision)

    def test_a_tree_lists_directories_first_with_sizes(self, world: World) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")
        head = world.forge.head(repo).sha

        top = world.forge.list_tree(repo, head)
        below = world.forge.list_tree(repo, head, "lib/deep")

        assert [(entry.kind, entry.path, entry.size) for entry in top] == [
            ("directory", "lib", None),
            ("file", "app.py", 15),
            ("file", "README.md", 8),
        ]
        assert [entry.path for entry in below] == ["lib/deep/file.txt"]

    @pytest.mark.parametrize("path", ["missing", "app.py", "../..", "lib/../lib", "lib//deep", "li\nb", "lib\0"])
    def test_what_is_no_directory_is_not_found(self, world: World, path: str) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")

        with pytest.raises(NotFound):
            world.forge.list_tree(repo, world.forge.head(repo).sha, path)

    def test_a_file_is_read_as_it_was_at_that_commit(self, world: World) -> None:
        old = b"\x00\xff binary \r\n no line feed at the end"
        world.repository("alice/app", files={"data.bin": old, "empty": b""})
        repo = world.get("alice/app")
        first = world.forge.head(repo).sha
        world.commit("alice/app", {"data.bin": b"new"})

        assert world.forge.read_file(repo, first, "data.bin", limit=1000) == old
        assert world.forge.read_file(repo, first, "empty", limit=1000) == b""

    def test_names_with_spaces_and_other_scripts_are_read(self, world: World) -> None:
        world.repository("alice/app", files={"説明 書/読んで ね.txt": "はい"})
        repo = world.get("alice/app")
        head = world.forge.head(repo).sha

        assert world.forge.list_tree(repo, head, "説明 書")[0].name == "読んで ね.txt"
        assert world.forge.read_file(repo, head, "説明 書/読んで ね.txt", limit=100) == "はい".encode()

    def test_a_file_above_the_limit_is_too_large_and_one_of_exactly_the_limit_is_not(self, world: World) -> None:
        world.repository("alice/app", files={"f": "x" * 100})
        repo = world.get("alice/app")
        head = world.forge.head(repo).sha

        assert len(world.forge.read_file(repo, head, "f", limit=100)) == 100
        for limit in (99, 0):
            with pytest.raises(TooLarge):
                world.forge.read_file(repo, head, "f", limit=limit)

    @pytest.mark.parametrize(
        "path",
        ["missing", "lib", "", "/", "..", "../README.md", "./README.md", "lib//deep", "a\nb", "a\0b", "x" * 9000],
    )
    def test_what_is_no_file_is_not_found(self, world: World, path: str) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")

        with pytest.raises(NotFound):
            world.forge.read_file(repo, world.forge.head(repo).sha, path, limit=1000)

    # --- git's own protocol ------------------------------------------------------------------------------------

    def test_git_is_told_the_refs(self, world: World) -> None:
        world.repository("alice/app")
        repo = world.get("alice/app")

        async def advertised() -> bytes:
            async with aclosing(world.forge.serve_git(repo, GitRequest("advertise", "", _nothing()))) as chunks:  # type: ignore[type-var]
                return b"".join([chunk async for chunk in chunks])

        answer = asyncio.run(advertised())

        assert answer.startswith(b"001e# service=git-upload-pack\n0000")
        assert world.forge.head(repo).sha.encode() in answer
        assert b"refs/heads/main" in answer


async def _nothing() -> AsyncIterator[bytes]:
    empty: tuple[bytes, ...] = ()
    for chunk in empty:
        yield chunk
