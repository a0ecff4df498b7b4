"""A person makes, looks after and revokes personal tokens in the portal."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.utils import timezone

from jobs import notices
from jobs.models import AuditEvent
from spaces import tokens
from spaces.models import PersonalToken
from tests.factories import ago

TOKEN = re.compile(r"ofp_[A-Za-z0-9_-]{43}")


def make(client: Client, *, name: str = "laptop", days: int = 30, **form: str) -> str:
    """Make a token by the form; return the page."""
    ends_on = (timezone.localdate() + timedelta(days=days)).isoformat()
    answer = client.post("/tokens/", {"name": name, "ends_on": ends_on, **form})
    assert answer.status_code in (200, 400)
    return str(answer.content.decode())


def test_the_account_menu_leads_there(alice: Client) -> None:
    assert 'href="/tokens/"' in alice.get("/").content.decode()


def test_a_token_is_shown_once_and_kept_as_a_hash(alice: Client) -> None:
    shown = TOKEN.search(make(alice))

    assert shown is not None
    page = alice.get("/tokens/")
    assert "laptop" in page.content.decode() and TOKEN.search(page.content.decode()) is None
    assert "no-store" in page["Cache-Control"]
    row = PersonalToken.objects.values().get()
    assert shown[0] not in repr(row)
    known = tokens.look_up(tokens.digest_of(shown[0].encode()) or "")
    assert known is not None and known.user.get_username() == "alice"


def test_it_is_good_through_the_day_that_was_named(alice: Client) -> None:
    make(alice, days=0)

    ends = timezone.localtime(PersonalToken.objects.get().expires_at)
    assert (ends.date(), ends.time().isoformat()) == (timezone.localdate() + timedelta(days=1), "00:00:00")


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"name": " "}, "Give it a name"),
        ({"name": "x" * 65}, "Give it a name"),
        ({"name": "a\x00b"}, "Give it a name"),
        ({"ends_on": ""}, "Name the last day"),
        ({"ends_on": "2026-02-31"}, "Name the last day"),
        ({"ends_on": "soon"}, "Name the last day"),
        ({"ends_on": "2020-01-01"}, "That day is over already."),
        ({"ends_on": "2999-01-01"}, "366 days at most"),
    ],
)
def test_a_refusal_says_why(alice: Client, form: dict[str, str], why: str) -> None:
    page = make(alice, **form)  # type: ignore[arg-type]  # of the form's fields only

    assert why in page and TOKEN.search(page) is None
    assert not PersonalToken.objects.exists()


def test_a_page_that_is_sent_twice_makes_one_token(alice: Client) -> None:
    make(alice, name="laptop")

    assert "You have a token of that name already." in make(alice, name=" LAPTOP ")
    assert PersonalToken.objects.count() == 1


def test_nobody_gathers_tokens_without_end(alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_PER_PERSON", 1)
    make(alice, name="first")

    assert "You have 1 tokens" in make(alice, name="second")


def test_a_revoked_token_is_gone_and_everybody_is_told(alice: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(notices, "publish", lambda kind, **ids: told.append((kind, ids)))
    make(alice)
    row = PersonalToken.objects.get()

    for _ in range(2):
        assert alice.post(f"/tokens/{row.pk}/revoke").status_code == 303

    assert not PersonalToken.objects.exists()
    assert told == [("token", {"token": row.pk})]
    assert "laptop is revoked" in alice.get("/tokens/").content.decode()


def test_the_tokens_of_others_are_neither_shown_nor_revoked(alice: Client, carol: Client) -> None:
    make(alice)
    row = PersonalToken.objects.get()

    assert "laptop" not in carol.get("/tokens/").content.decode()
    assert carol.post(f"/tokens/{row.pk}/revoke").status_code == 404
    assert PersonalToken.objects.filter(pk=row.pk).exists()


def test_only_who_is_signed_in_has_such_a_page(passer_by: Client) -> None:
    assert passer_by.get("/tokens/")["Location"] == "/login/?next=/tokens/"
    assert passer_by.post("/tokens/", {"name": "x"}).status_code == 302
    assert not PersonalToken.objects.exists()


def test_making_and_revoking_are_in_the_audit_without_the_token(alice: Client) -> None:
    shown = TOKEN.search(make(alice))
    assert shown is not None
    alice.post(f"/tokens/{PersonalToken.objects.get().pk}/revoke")

    acts = list(AuditEvent.objects.order_by("pk").values())
    assert [(act["act"], act["actor_name"], act["object_name"]) for act in acts] == [
        ("token_create", "alice", "laptop"),
        ("token_revoke", "alice", "laptop"),
    ]
    assert shown[0] not in repr(acts) and (tokens.digest_of(shown[0].encode()) or "") not in repr(acts)


def test_last_use_and_end_are_told(alice: Client, owner: User) -> None:
    make(alice, name="used")
    make(alice, name="old")
    PersonalToken.objects.filter(name="used").update(last_used_at=ago(3600))
    PersonalToken.objects.filter(name="old").update(expires_at=ago(1))

    page = alice.get("/tokens/").content.decode()

    assert page.count("last used ") == 1 and page.count("never used") == 1
    assert page.count(">over<") == 1


def test_the_page_speaks_japanese(alice: Client) -> None:
    make(alice)

    page = alice.get("/tokens/", headers={"Accept-Language": "ja"}).content.decode()

    assert "パーソナルトークン" in page and "Revoke" not in page
