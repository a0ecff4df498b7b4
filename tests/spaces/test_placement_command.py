"""`manage.py placement`: the same act from a shell, for people and for programs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.models import AuditEvent, Job
from jobs.requirements import spec_of
from spaces.models import Space
from tests.factories import GpuWorkerFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def space(db: None) -> Space:
    UptimeFactory.create()
    GpuWorkerFactory.create(name="gpu1")
    return make_space("alice/app", topics=("space", "gpu"), visibility="private")


def said(*arguments: str) -> str:
    out = io.StringIO()
    call_command("placement", *arguments, stdout=out)
    return out.getvalue()


def told(*arguments: str) -> Any:
    return json.loads(said(*arguments, "--json"))


def test_without_a_wish_it_says_how_it_is() -> None:
    text = said("alice/app")

    assert text.startswith("alice/app: Automatic. Needs a whole GPU. Could start now on gpu1.\n")
    assert "  gpu1: gpu1 can take it now." in text
    assert not AuditEvent.objects.exists()


def test_it_sets_what_is_wished_and_says_what_came_of_it(space: Space) -> None:
    runs.submit(space, requirement=runs.GPU)

    text = said("alice/APP", "worker", "GPU1", "--reason", "its data is there")

    assert "alice/app: On gpu1 only. Needs a whole GPU, on gpu1 only." in text
    assert "Set. The run in line has the new needs and kept its place." in text
    event = AuditEvent.objects.get()
    assert (event.act, event.actor_name, event.reason) == ("space_placement", "command line", "its data is there")


def test_programs_read_what_was_changed(space: Space) -> None:
    job = runs.submit(space, requirement=runs.GPU)

    answer = told("alice/app", "cpu")

    assert (answer["space"], answer["placement"], answer["worker"]) == ("alice/app", "cpu", None)
    assert answer["requirement"]["kind"] == "cpu"
    assert (answer["changed"], answer["moved"]) == (True, [str(job.pk)])
    assert answer["outlook"]["code"] == "no_compatible_worker"
    assert [row["code"] for row in answer["workers"]] == ["cpu_runs_locally"]
    assert spec_of(Job.objects.get().requirement) == runs.CPU


def test_a_preview_sets_nothing(space: Space) -> None:
    answer = told("alice/app", "worker", "gpu1", "--preview")

    assert (answer["placement"], answer["worker"], answer["changed"]) == ("worker", "gpu1", False)
    assert Space.objects.get().placement == "automatic"
    assert not AuditEvent.objects.exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["alice"], "OWNER/REPO"),
        (["alice/nothing"], "no such repository"),
        (["alice/app", "moon"], "There is no placement"),
        (["alice/app", "worker"], "Name the worker"),
        (["alice/app", "worker", "nobody"], "There is no worker nobody"),
        (["alice/app", "cpu", "gpu1"], "only with the placement"),
    ],
)
def test_what_cannot_be_is_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        said(*arguments)
