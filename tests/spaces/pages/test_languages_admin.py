"""The admin speaks the reader's language: no column, filter, choice or explanation is left in English."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import models
from django.test import Client
from django.utils import translation

from jobs.models import Job, JobEvent
from jobs.state_names import STATE_NAMES
from jobs.states import JobState

OURS = ("jobs", "spaces", "workers")
# The same word in both languages, or no word at all.
SAME = {"GPU", "SDK", "UUID", "MIG", "VRAM (MiB)", "Space", "Spaces", "CPU"}
MODELS = [model for model in admin.site._registry if model._meta.app_label in OURS]


def japanese(text: object) -> bool:
    """Whether a sentence has a Japanese character in it, or needs none."""
    words = str(text)
    return not words or words in SAME or any(ord(letter) > 0x3000 for letter in words)


def told(model: type[models.Model]) -> list[object]:
    """What the admin says of a model beside its rows."""
    said: list[object] = [model._meta.verbose_name, model._meta.app_config.verbose_name]
    shown = admin.site._registry[model]
    hidden = {*(shown.exclude or ()), *getattr(shown, "hidden", ())}
    for field in model._meta.get_fields():
        if not isinstance(field, models.Field) or not field.editable or field.primary_key or field.name in hidden:
            continue
        said += [field.verbose_name, *(name for _value, name in field.choices or ())]
        said += [field.help_text] if " " in str(field.help_text) and not str(field.help_text).startswith("[") else []
    return said


@pytest.mark.parametrize("model", MODELS, ids=lambda model: str(model._meta.label))
def test_models_columns_choices_and_explanations_are_in_japanese(model: type[models.Model]) -> None:
    with translation.override("ja"):
        left = [str(text) for text in told(model) if not japanese(text)]

    assert left == []


def test_every_state_has_its_name() -> None:
    assert set(STATE_NAMES) == set(JobState)
    assert Job(state="unavailable").get_state_display() == "Unavailable"
    with translation.override("ja"):
        assert JobEvent(to_state="unavailable").get_to_state_display() == "利用不可"


@pytest.mark.django_db
def test_a_list_in_japanese_has_japanese_columns_and_filters(client: Client) -> None:
    client.force_login(User.objects.create_superuser("root"))

    page = client.get("/admin/jobs/job/", headers={"Accept-Language": "ja"}).content.decode()

    assert "状態" in page and "種類" in page
    assert "State since" not in page and "In this state since" not in page
