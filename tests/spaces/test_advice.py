"""Advice on topics and README is kept as code and figures, and read in the reader's own language."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client
from django.utils import translation

from jobs.models import Job
from spaces import topics
from spaces.advice import SENTENCES, Advice, worded
from tests.spaces.pages.conftest import signed_in
from tests.spaces.repositories import make_space

FACTS: dict[str, Any] = {
    "key": "app_port",
    "allowed": "a, b",
    "topics": "cpu, gpu",
    "topic": "gpus-99",
    "kind": "space",
    "most": 16,
    "largest": 3,
    "limit": 1,
    "limit_kib": 1,
    "line": 2,
}


@pytest.fixture(autouse=True)
def english() -> Iterator[None]:
    """A page in another language leaves that language with the thread: not for the next test."""
    with translation.override("en"):
        yield


@pytest.mark.parametrize("code", SENTENCES)
@pytest.mark.parametrize("language", ["en", "ja"])
def test_every_piece_can_be_stored_and_worded_in_both_languages(code: str, language: str) -> None:
    advice = Advice(code, FACTS)

    with translation.override(language):
        said = worded(json.loads(json.dumps(advice.as_json())))

        assert said == str(advice)
    assert "%" not in said
    assert said.isascii() == (language == "en") or "…" in said


def test_what_the_readme_says_is_told_as_such() -> None:
    assert str(Advice("readme_text", {"key": "title"})) == "README: title: expected a text."
    assert Advice("readme_text", {"key": "title"}).sentence == "title: expected a text."


def test_a_sentence_of_an_earlier_version_is_told_as_it_is() -> None:
    assert worded("The topic gpus-0 is no number of GPUs.") == "The topic gpus-0 is no number of GPUs."


@pytest.mark.parametrize("stored", [{"code": "of_a_newer_version", "facts": {}}, {"code": "readme_text"}, {}, None, 7])
def test_what_cannot_be_worded_costs_no_page(stored: Any) -> None:
    assert isinstance(worded(stored), str)


@pytest.mark.django_db
def test_whoever_started_it_its_owner_reads_it_in_his_own_language(owner: Any) -> None:
    make_space("alice/app", topics=("space", "gpu", "cpu"))
    alice = signed_in(owner)
    alice.post("/spaces/alice/app/start", headers={"accept-language": "en"})
    assert Job.objects.get().spec["warnings"] == [{"code": "topics_cpu_and_gpu", "facts": {}}]

    def page(language: str, client: Client = alice) -> str:
        return client.get("/spaces/alice/app/", headers={"accept-language": language}).content.decode()

    assert "The topics cpu and gpu exclude each other" in page("en")
    assert "GPU を待ちます" in page("ja")


@pytest.mark.django_db
def test_so_does_he_before_the_first_start(owner: Any) -> None:
    make_space("alice/app", topics=("space", "gpus-99"))

    text = signed_in(owner).get("/spaces/alice/app/", headers={"accept-language": "ja"}).content.decode()

    assert "1 から 16 までの GPU 数ではない" in text


def test_plans_of_the_same_topics_are_equal() -> None:
    assert topics.plan(["space", "gpus-99"]) == topics.plan(["gpus-99", "space"])
