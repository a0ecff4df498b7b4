"""An app that runs and is ill: what ails it stands under its frame and in the history, until it is well again."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.clock import database_now
from jobs.lifecycle import mark_silent
from jobs.models import Job, JobEvent
from spaces.live_state import read_state
from spaces.models import Space
from tests.factories import GpuWorkerFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.pages.runs import Attempt
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db

SPACE = "/spaces/alice/lab/"
LOST = "It runs, but its GPU is lost inside its container; a restart brings it back."


@pytest.fixture
def running() -> Attempt:
    UptimeFactory()
    worker = GpuWorkerFactory.create(name="atlas", gpus=[{}])
    runs.submit(make_space("alice/lab", topics=("space", "gpu")), requirement=runs.GPU)
    return runs.claim(worker).to_running()


def lose(attempt: Attempt) -> None:
    """What the keeper does when a worker is silent."""
    since = Worker.objects.get().last_seen_at
    mark_silent(attempt.job.pk, worker_name="atlas", since=since, now=database_now())


def under_the_frame(client: Client) -> str:
    ails = client.get(SPACE).context["ailment"]
    return "" if ails is None else str(ails.sentence)


def history(client: Client) -> list[tuple[str, bool]]:
    [run] = client.get(f"{SPACE}activity/").context["runs"]
    return [(move.reason, move.warning) for move in run.moves]


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("gpu_lost", LOST),
        ("paused", "Its container is paused on the machine."),
        ("no_answer", "Nothing answers on its port."),
        (None, "Nothing answers on its port."),
        ("of_a_newer_worker", "Nothing answers on its port."),
    ],
)
def test_what_ails_it_is_said_and_its_state_stays(
    running: Attempt, alice: Client, reason: str | None, sentence: str
) -> None:
    running.report("health", healthy=False, reason=reason, detail="said by a worker")

    assert under_the_frame(alice) == sentence
    assert sentence in alice.get(SPACE).content.decode()
    assert history(alice)[0] == (sentence, True)
    assert Job.objects.get().state == "running"


def test_an_app_that_is_well_again_is_said_so_and_nothing_ails_it(running: Attempt, alice: Client) -> None:
    running.report("health", healthy=False, reason="no_answer").report("health", healthy=True)

    assert under_the_frame(alice) == ""
    assert history(alice)[0] == ("It answers again.", False)


def test_nothing_ails_an_app_that_was_never_ill(running: Attempt, alice: Client) -> None:
    assert under_the_frame(alice) == ""


def test_what_ailed_it_before_its_worker_was_away_ails_it_still(running: Attempt, alice: Client) -> None:
    running.report("health", healthy=False, reason="gpu_lost")
    lose(running)

    running.report("running", image_id="sha256:3f", gpus=[])

    assert Job.objects.get().state == "running"
    assert under_the_frame(alice) == LOST


def test_what_ailed_it_before_a_reboot_ails_it_no_more(running: Attempt, alice: Client) -> None:
    running.report("health", healthy=False, reason="gpu_lost")

    running.report("starting", reason="host_rebooted").report("running", image_id="sha256:3f", gpus=[])

    assert under_the_frame(alice) == ""


def test_it_is_told_in_the_readers_language(running: Attempt, alice: Client) -> None:
    running.report("health", healthy=False, reason="gpu_lost")

    page = alice.get(SPACE, headers={"Accept-Language": "ja"}).content.decode()

    assert "コンテナ内で GPU が失われました" in page and LOST not in page


def test_a_repeated_report_is_told_once(running: Attempt) -> None:
    running.report("health", healthy=False, reason="gpu_lost")
    running.seq -= 1

    running.report("health", healthy=False, reason="gpu_lost")

    assert JobEvent.objects.filter(event="app_health").count() == 1


def test_health_says_nothing_of_a_job_that_is_stopped(running: Attempt) -> None:
    Job.objects.update(state="stopping")

    running.report("health", healthy=False, reason="no_answer")

    assert not JobEvent.objects.filter(event="app_health").exists()


def test_what_is_told_before_its_worker_counts_as_back_is_not_lost(running: Attempt, alice: Client) -> None:
    lose(running)

    running.report("health", healthy=False, reason="gpu_lost")
    assert Job.objects.get().state == "unavailable"
    running.report("running", image_id="sha256:3f", gpus=[])

    assert under_the_frame(alice) == LOST


def test_an_app_that_is_well_when_its_worker_returns_ails_no_more(running: Attempt, alice: Client) -> None:
    running.report("health", healthy=False, reason="no_answer")
    lose(running)

    running.report("health", healthy=True).report("running", image_id="sha256:3f", gpus=[])

    assert under_the_frame(alice) == ""


@pytest.mark.parametrize(
    "known", [{"healthy": True}, {"healthy": False, "reason": "no_answer"}, {"healthy": False, "reason": "gpu_lost"}]
)
def test_what_is_no_news_writes_no_line(running: Attempt, known: dict[str, Any]) -> None:
    running.report("health", **known)
    before = JobEvent.objects.filter(event="app_health").count()

    running.report("health", **known)

    assert JobEvent.objects.filter(event="app_health").count() == before == (0 if known["healthy"] else 1)


def test_the_state_that_open_pages_follow_has_the_ailment_in_it(running: Attempt) -> None:
    space = Space.objects.get()
    assert read_state(space)["ailment"] == ""

    running.report("health", healthy=False, reason="paused")

    assert read_state(space)["ailment"] == "app_frozen"


def test_another_ailment_takes_the_place_of_the_first(running: Attempt, alice: Client) -> None:
    running.report("health", healthy=False, reason="no_answer").report("health", healthy=False, reason="gpu_lost")

    assert under_the_frame(alice) == LOST
    assert [reason for reason, _ in history(alice)[:2]] == [LOST, "Nothing answers on its port."]
    assert read_state(Space.objects.get())["ailment"] == "app_lost_gpu"


@pytest.mark.parametrize("gateway", ["refused", "timeout"])
def test_an_app_whose_machine_cannot_be_reached_says_so_until_it_can(
    running: Attempt, alice: Client, gateway: str
) -> None:
    Worker.objects.update(gateway_status=gateway)
    assert under_the_frame(alice) == "It runs, but its machine cannot be reached from here to open it."
    assert read_state(Space.objects.get())["ailment"] == "gateway_unreachable"

    Worker.objects.update(gateway_status="ok")

    assert under_the_frame(alice) == ""


def test_what_ails_the_app_itself_is_said_before_that_its_machine_is_out_of_reach(
    running: Attempt, alice: Client
) -> None:
    Worker.objects.update(gateway_status="timeout")

    running.report("health", healthy=False, reason="gpu_lost")

    assert under_the_frame(alice) == LOST


def test_its_card_and_its_status_say_it_too(running: Attempt, alice: Client) -> None:
    assert alice.get("/api/v1/spaces/alice/lab/status").json()["ailment"] is None
    running.report("health", healthy=False, reason="paused")

    (card,) = alice.get("/spaces/").context["cards"]

    assert (card.line, card.warns, card.group) == ("Its container is paused on the machine.", True, "running")
    assert alice.get("/api/v1/spaces/alice/lab/status").json()["ailment"] == {
        "code": "app_frozen",
        "detail": "Its container is paused on the machine.",
    }
