"""Operators set placement and access in the admin; each such act is recorded, and what the forge says is only shown."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse

from jobs import notices
from jobs.models import AuditEvent
from spaces.access import Permission, permission
from spaces.forge.local_writes import find_repository
from spaces.models import LocalCollaborator, Space
from tests.spaces.repositories import make_repository, make_space

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin_client(db: None) -> Client:
    client = Client()
    client.force_login(User.objects.create_superuser("root"))
    return client


def space_form(space: Space, **changes: object) -> dict[str, Any]:
    form = {
        "app_port": "",
        "startup_timeout_seconds": "",
        "keep_prefix": "unknown",
        "rewrite_host": "unknown",
    }
    return {**form, **changes}


def repository_form(**changes: object) -> dict[str, Any]:
    form = {
        "visibility": "private",
        "topics": "space",
        "default_branch": "main",
        "collaborators-TOTAL_FORMS": "0",
        "collaborators-INITIAL_FORMS": "0",
    }
    return {**form, **changes}


@pytest.mark.parametrize("model", ["space", "localrepository"])
def test_lists_and_forms_open(admin_client: Client, model: str) -> None:
    space = make_space("alice/app")
    pk = space.pk if model == "space" else int(space.repository_id)

    for page in (
        reverse(f"admin:spaces_{model}_changelist"),
        reverse(f"admin:spaces_{model}_changelist") + "?q=alice",
        reverse(f"admin:spaces_{model}_change", args=[pk]),
    ):
        answer = admin_client.get(page)
        assert answer.status_code == 200
        assert "alice" in answer.content.decode()


@pytest.mark.parametrize("model", ["space", "localrepository"])
def test_nothing_is_added_or_deleted_there(admin_client: Client, model: str) -> None:
    space = make_space("alice/app")
    pk = space.pk if model == "space" else int(space.repository_id)

    assert admin_client.get(reverse(f"admin:spaces_{model}_add")).status_code == 403
    assert admin_client.post(reverse(f"admin:spaces_{model}_delete", args=[pk]), {"post": "yes"}).status_code == 403


def test_settings_are_changed_and_recorded(admin_client: Client) -> None:
    space = make_space("alice/app")

    admin_client.post(reverse("admin:spaces_space_change", args=[space.pk]), space_form(space, app_port="8080"))

    space.refresh_from_db()
    assert space.app_port == 8080
    event = AuditEvent.objects.get()
    assert (event.act, event.actor_name, event.object_name) == ("space_settings", "root", "alice/app")
    assert (event.before, event.after) == ({"app_port": None}, {"app_port": 8080})


def test_what_the_forge_says_cannot_be_overwritten_there(admin_client: Client) -> None:
    space = make_space("alice/app", visibility="private")

    admin_client.post(
        reverse("admin:spaces_space_change", args=[space.pk]),
        space_form(space, visibility="public", owner="mallory", topics="gpu"),
    )

    space.refresh_from_db()
    assert (space.visibility, space.owner, space.topics) == ("private", "alice", ["space"])


def test_access_is_given_recorded_and_told(
    admin_client: Client, teammate: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    space = make_space("alice/app", visibility="private")
    told: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(notices, "publish", lambda kind, **ids: told.append((kind, ids)))

    answer = admin_client.post(
        reverse("admin:spaces_localrepository_change", args=[space.repository_id]),
        repository_form(
            topics=" GPU,space",
            **{
                "collaborators-TOTAL_FORMS": "1",
                "collaborators-0-user": str(teammate.pk),
                "collaborators-0-permission": "write",
            },
        ),
    )

    assert answer.status_code == 302
    assert permission(teammate, space) is Permission.WRITE
    assert find_repository("alice", "app").topics == ["gpu", "space"]
    event = AuditEvent.objects.get()
    assert event.act == "repository_access"
    assert event.after == {"topics": ["GPU", "space"], "collaborators": {"bob": "write"}}
    assert told == [("access", {"space": space.pk})]


def test_access_that_is_taken_away_is_told_too(admin_client: Client, teammate: User) -> None:
    row = make_repository("alice/app", visibility="private")
    given = LocalCollaborator.objects.create(repository=row, user=teammate, permission="read")

    admin_client.post(
        reverse("admin:spaces_localrepository_change", args=[row.pk]),
        repository_form(
            **{
                "collaborators-TOTAL_FORMS": "1",
                "collaborators-INITIAL_FORMS": "1",
                "collaborators-0-id": str(given.pk),
                "collaborators-0-repository": str(row.pk),
                "collaborators-0-user": str(teammate.pk),
                "collaborators-0-permission": "read",
                "collaborators-0-DELETE": "on",
            }
        ),
    )

    assert not LocalCollaborator.objects.exists()
    assert AuditEvent.objects.get().after == {"collaborators": {}}


def test_saving_what_is_there_already_is_no_act(admin_client: Client) -> None:
    row = make_repository("alice/app", visibility="private")

    answer = admin_client.post(reverse("admin:spaces_localrepository_change", args=[row.pk]), repository_form())

    assert answer.status_code == 302
    assert not AuditEvent.objects.exists()


def test_somebody_who_is_no_operator_gets_nothing(stranger: User) -> None:
    client = Client()
    client.force_login(stranger)

    assert client.get(reverse("admin:spaces_space_changelist")).status_code == 302
