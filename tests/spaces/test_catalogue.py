"""The catalogue follows the forge by looking: nobody has to tell it anything."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import OperationalError
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from spaces import catalogue
from spaces.access import get_space, permission, visible_spaces
from spaces.catalogue import FRESH
from spaces.forge.base import Permission, Repository
from spaces.forge.errors import NotFound
from spaces.forge.local import repository_directory
from spaces.forge.local_writes import find_repository
from spaces.front_matter import FrontMatter
from spaces.models import LocalCollaborator, LocalRepository, Space
from tests.spaces.repositories import README, commit, make_repository, make_space

pytestmark = pytest.mark.django_db
ANYBODY = AnonymousUser()


def grow_old(space: Space) -> None:
    """Let the row's last look at the repository be longer ago than what counts as fresh."""
    Space.objects.filter(pk=space.pk).update(synced_at=timezone.now() - 2 * FRESH)


def test_a_repository_becomes_a_space_at_the_first_look(owner: User) -> None:
    row = make_repository("alice/octopus", topics=["space", "gpu"])

    space = get_space(owner, "ALICE", "Octopus")

    assert (space.owner, space.name, space.repository_id) == ("alice", "octopus", str(row.pk))
    assert (space.title, space.emoji, space.sdk, space.topics) == ("A title", "🐙", "docker", ["gpu", "space"])
    assert len(space.head_revision) == 40
    assert [s.pk for s in visible_spaces(owner)] == [space.pk]


def test_a_repository_without_the_topic_is_no_space() -> None:
    make_repository("alice/library", topics=["python"])

    with pytest.raises(NotFound, match="lacks the topic"):
        get_space(ANYBODY, "alice", "library")
    assert visible_spaces(ANYBODY) == []


def test_a_space_whose_topic_was_taken_away_keeps_its_page_and_leaves_the_list() -> None:
    make_space("alice/app")
    LocalRepository.objects.update(topics=["python"])

    assert get_space(ANYBODY, "alice", "app").topics == ["python"]
    assert visible_spaces(ANYBODY) == []


def test_a_push_shows_after_a_few_seconds_at_the_next_look() -> None:
    space = make_space("alice/app")
    pushed = commit("alice/app", {"README.md": README.replace("A title", "Another title")})

    assert get_space(ANYBODY, "alice", "app").head_revision == space.head_revision
    grow_old(space)

    seen = get_space(ANYBODY, "alice", "app")
    assert (seen.head_revision, seen.title) == (pushed, "Another title")
    assert Space.objects.get().title == "Another title"


def test_visibility_and_topics_show_at_once() -> None:
    make_space("alice/app")
    LocalRepository.objects.update(visibility="private", topics=["gpu", "space"])

    with pytest.raises(NotFound):
        get_space(ANYBODY, "alice", "app")
    assert get_space(User.objects.create_user("Alice"), "alice", "app").topics == ["gpu", "space"]
    assert Space.objects.get().visibility == "private"


def test_a_renamed_repository_is_the_same_space() -> None:
    space = make_space("alice/before")
    LocalRepository.objects.update(owner="bob", name="After")

    assert get_space(ANYBODY, "bob", "after").pk == space.pk
    assert str(Space.objects.get()) == "bob/After"


def test_a_name_that_is_used_anew_is_another_space_and_the_old_one_keeps_its_history() -> None:
    old = make_space("alice/app")
    find_repository("alice", "app").delete()
    make_repository("ALICE/App")

    new = get_space(ANYBODY, "alice", "app")

    assert new.pk != old.pk
    assert (new.owner, new.name) == ("ALICE", "App")
    assert Space.objects.get(pk=old.pk).name == f"app~{old.repository_id}"
    assert permission(ANYBODY, Space.objects.get(pk=old.pk)) is Permission.NONE


def test_two_repositories_that_change_names_keep_their_spaces() -> None:
    one, two = make_space("alice/one"), make_space("alice/two")
    LocalRepository.objects.filter(pk=int(one.repository_id)).update(name="three")
    LocalRepository.objects.filter(pk=int(two.repository_id)).update(name="one")
    LocalRepository.objects.filter(pk=int(one.repository_id)).update(name="two")

    assert [(s.name, s.pk) for s in visible_spaces(ANYBODY)] == [("one", two.pk), ("two", one.pk)]
    assert get_space(ANYBODY, "alice", "two").pk == one.pk


def test_an_empty_repository_is_a_space_without_a_head() -> None:
    make_repository("alice/empty", files=None)

    space = get_space(ANYBODY, "alice", "empty")

    assert (space.head_revision, space.head_at, space.title) == ("", None, "")


def test_a_repository_without_a_readme_is_a_space() -> None:
    make_repository("alice/bare", files={"Dockerfile": "FROM scratch\n"})

    assert get_space(ANYBODY, "alice", "bare").title == ""


def test_a_readme_that_is_a_directory_or_absurdly_large_costs_only_its_facts() -> None:
    make_repository("alice/odd", files={"README.md/inside": "x"})
    make_repository("alice/huge", files={"README.md": README + "x" * 2_000_000})

    assert get_space(ANYBODY, "alice", "odd").title == ""
    assert get_space(ANYBODY, "alice", "huge").title == ""


def test_a_forge_that_lost_the_files_leaves_what_was_known() -> None:
    space = make_space("alice/app")
    directory = repository_directory(space.repository_id)
    directory.rename(directory.with_suffix(".lost"))
    grow_old(space)

    assert get_space(ANYBODY, "alice", "app").title == "A title"

    directory.with_suffix(".lost").rename(directory)
    commit("alice/app", {"README.md": README.replace("A title", "Back")})
    assert get_space(ANYBODY, "alice", "app").title == "Back"


def test_the_list_shows_each_person_what_he_may_read(owner: User, teammate: User, stranger: User) -> None:
    for name, visibility in (("a-open", "public"), ("b-inside", "internal"), ("c-secret", "private")):
        make_repository(f"alice/{name}", visibility=visibility)
    LocalCollaborator.objects.create(repository=find_repository("alice", "c-secret"), user=teammate, permission="read")

    def names(user: User | AnonymousUser) -> list[str]:
        return [space.name for space in visible_spaces(user)]

    assert names(ANYBODY) == ["a-open"]
    assert names(stranger) == ["a-open", "b-inside"]
    assert names(teammate) == names(owner) == ["a-open", "b-inside", "c-secret"]


def test_inference_and_benchmark_repositories_are_listed_once_each() -> None:
    make_repository("alice/model", topics=["inference"])
    make_repository("alice/all", topics=["benchmark", "inference", "space"])
    make_repository("alice/bench", topics=["benchmark"])

    assert [space.name for space in visible_spaces(ANYBODY)] == ["all", "bench", "model"]


def test_the_cost_of_the_list_does_not_grow_with_it(
    owner: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    for number in range(8):
        make_repository(f"alice/app{number}", visibility="private")
    visible_spaces(owner)  # the rows exist from here on

    with django_assert_max_num_queries(4):
        assert len(visible_spaces(owner)) == 8


def test_the_cost_of_one_look_is_a_few_queries(
    stranger: User, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    make_space("alice/app")

    with django_assert_max_num_queries(2):
        space = get_space(stranger, "alice", "app")
    with django_assert_max_num_queries(1):
        assert permission(stranger, space) is Permission.READ


def test_a_list_of_many_new_repositories_is_shown_at_once_and_read_bit_by_bit() -> None:
    for number in range(22):
        make_repository(f"alice/app{number:02}")

    first = visible_spaces(ANYBODY)
    second = visible_spaces(ANYBODY)

    assert sum(space.synced_at is not None for space in first) == 20
    assert all(space.synced_at is not None for space in second)


def test_old_rows_are_read_again_when_the_list_is_looked_at() -> None:
    space = make_space("alice/app")
    commit("alice/app", {"README.md": README.replace("A title", "Another title")})
    Space.objects.filter(pk=space.pk).update(synced_at=timezone.now() - timedelta(hours=1))

    assert visible_spaces(ANYBODY)[0].title == "Another title"


def test_one_repository_that_cannot_be_read_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bad = make_repository("alice/bad")
    make_repository("alice/good")
    read = catalogue.read_front_matter

    def broken(repo: Repository, revision: str) -> FrontMatter:
        if repo.id == str(bad.pk):
            raise ZeroDivisionError("a defect of ours")
        return read(repo, revision)

    monkeypatch.setattr(catalogue, "read_front_matter", broken)

    titles = {space.name: space.title for space in visible_spaces(ANYBODY)}

    assert titles == {"bad": "", "good": "A title"}
    assert "a defect of ours" in caplog.text
    assert all(space.synced_at is not None for space in visible_spaces(ANYBODY)), (
        "it waits for its turn like all others"
    )


def test_a_value_that_the_table_refuses_costs_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository("alice/bad")
    make_repository("alice/good")
    read = catalogue.read_front_matter
    monkeypatch.setattr(
        catalogue,
        "read_front_matter",
        lambda repo, revision: FrontMatter(title="\0") if repo.name == "bad" else read(repo, revision),
    )

    assert {space.name for space in visible_spaces(ANYBODY)} == {"bad", "good"}
    assert Space.objects.get(name="good").title == "A title"


def test_a_database_that_is_away_is_no_fault_of_a_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    make_repository("alice/app")

    def away(repo: Repository, revision: str) -> FrontMatter:
        raise OperationalError("the server closed the connection")

    monkeypatch.setattr(catalogue, "read_front_matter", away)

    with pytest.raises(OperationalError):
        visible_spaces(ANYBODY)


@pytest.mark.parametrize("title", ["!!int ''", "!!bool foo", "[" * 15000])
def test_a_hostile_readme_costs_its_title_alone(title: str) -> None:
    make_repository("alice/bad", files={"README.md": f"---\ntitle: {title}\n---\n"})
    make_repository("alice/good")

    assert {space.name: space.title for space in visible_spaces(ANYBODY)} == {"bad": "", "good": "A title"}
