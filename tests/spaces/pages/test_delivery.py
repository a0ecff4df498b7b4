"""A batch job has ended, and its results are on their way: its page says so, and how far they have come."""

from __future__ import annotations

import pytest
from django.test import Client

from jobs.models import Artifact, Job, JobEvent
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db

PAGE = "/spaces/alice/bench/"
HEADLINE = "Delivering its results"
ENDED = "It has ended, and its results are being delivered."


@pytest.fixture
def attempt(alice: Client, worker: Worker) -> runs.Attempt:
    make_space("alice/bench", topics=("benchmark",))
    assert alice.post(f"{PAGE}start").status_code == 303
    return runs.claim(worker).to_running()


def page(client: Client, tab: str = "") -> str:
    return str(client.get(f"{PAGE}{tab}").content.decode())


def arrive(attempt: runs.Attempt, path: str, size: int) -> None:
    Artifact.objects.create(job=attempt.job, lease=attempt.lease, path=path, size=size, sha256="0" * 64)


def test_while_it_computes_nothing_is_delivered(alice: Client, attempt: runs.Attempt) -> None:
    assert HEADLINE not in page(alice)


def test_the_page_says_what_is_on_its_way_and_what_is_here(alice: Client, attempt: runs.Attempt) -> None:
    attempt.report("delivering", files=3, bytes=4_000_000)
    assert "It has ended. 0 of 3 files are here, 0 B of 4.0 MB." in page(alice)
    arrive(attempt, "scores.csv", 1_000_000)

    text = page(alice)

    assert HEADLINE in text
    assert "It has ended. 1 of 3 files are here, 1.0 MB of 4.0 MB." in text
    assert 'width="25.0%"' in text
    assert "data-live-ticks" in text, "an open page follows"
    assert "A batch job computes and ends by itself" not in text


def test_the_history_says_it_once_also_after_a_restart_of_the_worker(alice: Client, attempt: runs.Attempt) -> None:
    attempt.report("delivering", files=3, bytes=4_000_000).report("delivering", files=3, bytes=4_000_000)

    assert page(alice, "activity/").count(ENDED) == 1
    assert Job.objects.get().state == "running"


def test_the_results_of_a_stopped_job_are_told_too(alice: Client, attempt: runs.Attempt) -> None:
    alice.post(f"{PAGE}stop")
    attempt.report("delivering", files=1, bytes=10)

    assert HEADLINE in page(alice)
    assert "The app gets some seconds to end by itself" not in page(alice)


def test_nothing_is_delivered_any_more_when_all_is_here(alice: Client, attempt: runs.Attempt) -> None:
    attempt.report("delivering", files=0, bytes=0).report("exited", code=0, oom_killed=False)

    assert HEADLINE not in page(alice)
    assert "It is done" in page(alice)


def test_another_attempt_computes_anew(alice: Client, attempt: runs.Attempt, worker: Worker) -> None:
    attempt.report("delivering", files=1, bytes=10).report("declined", reason="paused")
    runs.claim(worker).to_running()

    assert HEADLINE not in page(alice)
    assert "Computing" in page(alice)


def test_a_worker_that_does_not_say_how_much_is_believed_all_the_same(alice: Client, attempt: runs.Attempt) -> None:
    attempt.report("delivering", files=None, bytes=None)

    assert HEADLINE in page(alice) and ENDED in page(alice)
    assert JobEvent.objects.get(event="delivering").facts == {"files": 0, "bytes": 0}
