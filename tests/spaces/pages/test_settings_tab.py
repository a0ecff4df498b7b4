"""The Settings tab: who may write to a Space sets how its app is spoken to, and sees what left its prefix."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from jobs.models import AuditEvent, Job
from spaces import escaped, launch
from spaces.models import EscapedRequest, LocalCollaborator, LocalRepository, Space
from tests.spaces.pages.conftest import signed_in
from tests.spaces.repositories import make_space

TAB = "/spaces/alice/app/settings/"
FORGET = f"{TAB}escaped/forget"


def shown(client: Client, language: str = "en") -> str:
    answer = client.get(TAB, headers={"Accept-Language": language})
    assert answer.status_code == 200
    return str(answer.content.decode())


def save(client: Client, prefix: str = "", rewrite_host: str = "") -> str:
    """Send the form; return the page that follows."""
    answer = client.post(TAB, {"prefix": prefix, "rewrite_host": rewrite_host}, follow=True)
    assert answer.redirect_chain == [(TAB, 303)]
    return str(answer.content.decode())


def stored() -> tuple[bool | None, bool | None]:
    space = Space.objects.get()
    return space.keep_prefix, space.rewrite_host


def run(space: Space, user: User, **spec: object) -> Job:
    """Bring the Space to running, with these words in its run's spec."""
    job = launch.start(space, user=user)
    Job.objects.filter(pk=job.pk).update(state="running", spec={**job.spec, **spec})
    return job


@pytest.mark.parametrize(
    ("prefix", "rewrite_host", "kept"),
    [("keep", "yes", (True, True)), ("strip", "no", (False, False)), ("keep", "", (True, None))],
)
def test_the_owner_sets_it_for_later_starts(
    alice: Client, owner: User, prefix: str, rewrite_host: str, kept: tuple[bool | None, bool | None]
) -> None:
    space = make_space("alice/app")

    assert "Saved. It counts from the next start." in save(alice, prefix, rewrite_host)

    assert stored() == kept
    assert launch.start(space, user=owner).spec["prefix"] == prefix
    assert f'name="prefix" value="{prefix}" checked' in shown(alice)
    assert f'name="rewrite_host" value="{rewrite_host}" checked' in shown(alice)


def test_a_running_space_is_not_changed_and_its_owner_is_told_so(alice: Client, owner: User) -> None:
    job = run(make_space("alice/app"), owner)
    before = Job.objects.get(pk=job.pk).spec

    assert "restart the Space to have it now" in save(alice, "keep")
    assert Job.objects.get(pk=job.pk).spec == before


def test_it_can_be_left_to_the_readme_again(alice: Client) -> None:
    make_space("alice/app")
    save(alice, "keep", "yes")

    save(alice, "", "")

    assert stored() == (None, None)


def test_each_change_is_in_the_audit_once(alice: Client) -> None:
    make_space("alice/app")
    save(alice, "keep")
    assert "It is set like that already." in save(alice, "keep")

    (act,) = AuditEvent.objects.filter(act="space_settings")
    assert (act.actor_name, act.object_name) == ("alice", "alice/app")
    assert (act.before, act.after) == ({"keep_prefix": None}, {"keep_prefix": True})


def test_a_word_that_is_no_setting_changes_nothing(alice: Client) -> None:
    make_space("alice/app")

    assert "That is no setting" in save(alice, "both")
    assert stored() == (None, None)


class TestWhoMay:
    """Write permission, as for Start and Stop."""

    def test_a_reader_sees_neither_the_tab_nor_the_page(self, carol: Client, passer_by: Client) -> None:
        make_space("alice/app")

        for client in (carol, passer_by):
            assert 'href="/spaces/alice/app/settings/"' not in client.get("/spaces/alice/app/").content.decode()
            assert client.get(TAB).status_code == 403
            assert client.post(TAB, {"prefix": "keep"}).status_code == 403
            assert client.post(FORGET).status_code == 403
        assert stored() == (None, None)

    def test_a_private_space_is_not_there(self, carol: Client) -> None:
        make_space("alice/app", visibility="private")

        assert (carol.get(TAB).status_code, carol.post(FORGET).status_code) == (404, 404)

    def test_a_colleague_who_may_write_sets_it(self, teammate: User) -> None:
        make_space("alice/app")
        LocalCollaborator.objects.create(repository=LocalRepository.objects.get(), user=teammate, permission="write")
        client = signed_in(teammate)

        assert 'href="/spaces/alice/app/settings/"' in client.get("/spaces/alice/app/").content.decode()
        save(client, "strip")
        assert stored() == (False, None)


class TestWhatIsInForce:
    """What the present run was told, and what was found."""

    @pytest.mark.parametrize(
        ("spec", "said", "not_said"),
        [
            ({"prefix": "detect", "found_prefix": "keep"}, "The prefix is kept.", "does not fit"),
            ({"prefix": "detect", "found_prefix": "keep"}, "answers below /run/alice/app/, and not at /", "taken off."),
            ({"prefix": "detect", "found_prefix": "strip"}, "Found: the app answers at /.", "The prefix is kept."),
            ({"prefix": "detect"}, "is found out when it starts", "Found:"),
            ({"prefix": "strip", "found_prefix": "keep"}, "the setting does not fit", "The prefix is kept."),
            ({"prefix": "keep", "rewrite_host": True}, "Host and Origin are sent as localhost.", "Found:"),
        ],
    )
    def test_it_is_told_with_what_was_found(
        self, alice: Client, owner: User, spec: dict[str, object], said: str, not_said: str
    ) -> None:
        run(make_space("alice/app"), owner, **spec)

        page = shown(alice)

        assert said in page and not_said not in page

    def test_a_space_that_does_not_run_has_nothing_in_force(self, alice: Client) -> None:
        make_space("alice/app")

        assert "In force now" not in shown(alice)


class TestWhatLeftThePrefix:
    """Counted by the data plane."""

    def test_paths_counts_and_help_are_shown(self, alice: Client) -> None:
        make_space("alice/app")
        make_space("alice/other")
        escaped.record({"alice/app": {"/static/<x>.js": 12, "/rare": 1}, "alice/other": {"/not-mine": 3}})

        page = shown(alice)

        assert page.index("/static/&lt;x&gt;.js") < page.index("12 ×") < page.index("/rare")
        assert "/not-mine" not in page
        assert "OPENFACE_BASE_PATH" in page
        assert re.search(r"last \S+ s ago", page)

    def test_the_list_can_be_emptied(self, alice: Client) -> None:
        make_space("alice/app")
        make_space("alice/other")
        escaped.record({"alice/app": {"/x": 1}, "alice/other": {"/y": 1}})

        answer = alice.post(FORGET, follow=True)

        assert "The list is empty." in answer.content.decode()
        assert list(EscapedRequest.objects.values_list("path", flat=True)) == ["/y"]


def test_the_page_speaks_japanese(alice: Client) -> None:
    make_space("alice/app")
    escaped.record({"alice/app": {"/x": 1}})

    page = shown(alice, "ja")

    assert "プレフィックスの外に出たリクエスト" in page and "Host と Origin" in page
