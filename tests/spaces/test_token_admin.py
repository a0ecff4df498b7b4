"""Operators see whose personal tokens there are and can end them; the tokens and their hashes they do not see."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from jobs.models import AuditEvent
from spaces import tokens
from spaces.models import PersonalToken

pytestmark = pytest.mark.django_db

LIST = reverse("admin:spaces_personaltoken_changelist")


@pytest.fixture
def issued(owner: User) -> tokens.Issued:
    return tokens.issue(owner, name="laptop", ends_on=timezone.localdate() + timedelta(days=3))


@pytest.fixture
def otto(operator: User) -> Client:
    client = Client()
    client.force_login(operator)
    return client


def test_a_token_is_shown_with_its_person_and_without_its_hash(otto: Client, issued: tokens.Issued) -> None:
    for page in (LIST, LIST + "?q=alice", reverse("admin:spaces_personaltoken_change", args=[issued.row.pk])):
        shown = otto.get(page).content.decode()

        assert "laptop" in shown and "alice" in shown
        assert issued.row.token_hash not in shown and issued.token not in shown


def test_an_operator_revokes_it_in_his_own_name(otto: Client, issued: tokens.Issued) -> None:
    answer = otto.post(LIST, {"action": "revoke", "_selected_action": [issued.row.pk]}, follow=True)

    assert "1 token was revoked." in answer.content.decode()
    assert not PersonalToken.objects.exists()
    act = AuditEvent.objects.get(act="token_revoke")
    assert (act.actor_name, act.object_name) == ("otto", "laptop")


def test_it_is_neither_made_nor_changed_nor_deleted_there(otto: Client, issued: tokens.Issued) -> None:
    for act, args in (("add", []), ("delete", [issued.row.pk])):
        assert otto.get(reverse(f"admin:spaces_personaltoken_{act}", args=args)).status_code == 403
    change = reverse("admin:spaces_personaltoken_change", args=[issued.row.pk])
    assert otto.post(change, {"name": "other"}).status_code == 403


def test_others_have_no_such_list(issued: tokens.Issued, stranger: User) -> None:
    client = Client()
    client.force_login(stranger)

    assert client.get(LIST).status_code == 302
