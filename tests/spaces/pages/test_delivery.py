"""A batch job has ended, and its results are on their way: its page says so, and how far they have come."""

from __future__ import annotations

import pytest
from django.test import Client

from jobs.models import Artifact, Job, JobEvent
from spaces.models import LocalRepository, Space
from tests.factories import UptimeFactory, UserFactory, ago
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db

PAGE = "/spaces/alice/bench/"
HEADLINE = "Delivering its results"
ENDED = "It has ended, and its results are being delivered."


@pytest.fixture
def attempt(alice: Client, worker: Worker) -> runs.Attempt:
    UptimeFactory.create()
    make_space("alice/bench", topics=("benchmark",))
    assert alice.post(f"{PAGE}start").status_code == 303
    return runs.claim(worker).to_running()


def page(client: Client, tab: str = "") -> str:
    return str(client.get(f"{PAGE}{tab}").content.decode())


def arrive(attempt: runs.Attempt, path: str, size: int) -> None:
    Artifact.objects.create(job=attempt.job, lease=attempt.lease, path=path, size=size, sha256="0" * 64)


def test_while_it_computes_nothing_is_delivered(alice: Client, attempt: runs.Attempt) -> None:
    assert HEADLINE not in page(alice)


def test_its_reason_is_never_that_an_app_answers(alice: Client, attempt: runs.Attempt) -> None:
    computing = Job.objects.get()
    attempt.report("delivering", files=1, bytes=10)
    bringing = Job.objects.get()

    assert (computing.reason_code, computing.reason) == ("computing", "It computes until it ends by itself.")
    assert (bringing.reason_code, bringing.reason) == ("delivering", ENDED)
    for text in (page(alice), page(alice, "activity/")):
        assert "answers" not in text
    assert "自動的に終了するまで計算しています。" in str(
        alice.get(f"{PAGE}activity/", headers={"Accept-Language": "ja"}).content.decode()
    )


def test_of_a_job_on_a_silent_worker_that_stays_the_reason(attempt: runs.Attempt) -> None:
    Job.objects.update(state="unavailable", reason_code="worker_silent", reason="It is not heard from.")

    attempt.report("delivering", files=1, bytes=10)

    assert Job.objects.get().reason_code == "worker_silent"


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


class TestWhereElseItIsSaid:
    FIGURES = "1 of 3 files, 1.0 MB of 4.0 MB"

    @pytest.fixture(autouse=True)
    def on_its_way(self, attempt: runs.Attempt) -> None:
        attempt.report("delivering", files=3, bytes=4_000_000)
        arrive(attempt, "scores.csv", 1_000_000)

    def test_on_its_card(self, alice: Client) -> None:
        (card,) = alice.get("/spaces/").context["cards"]

        assert (card.line, card.warns) == (f"Delivering results · {self.FIGURES}", False)

    def test_in_its_status(self, alice: Client, attempt: runs.Attempt) -> None:
        told = alice.get("/api/v1/spaces/alice/bench/status").json()["delivering"]

        since = JobEvent.objects.get(event="delivering").at.isoformat()
        assert told == {"since": since, "files": 3, "files_here": 1, "bytes": 4_000_000, "bytes_here": 1_000_000}
        attempt.report("exited", code=0, oom_killed=False)
        assert alice.get("/api/v1/spaces/alice/bench/status").json()["delivering"] is None

    def test_on_the_fleet_page_by_its_name_for_those_who_may_know_it(self, alice: Client, otto: Client) -> None:
        Space.objects.update(visibility="private")
        LocalRepository.objects.update(visibility="private")
        dora = Client()
        dora.force_login(UserFactory.create(username="dora"))

        for reader, name in ((alice, "alice/bench"), (otto, "alice/bench"), (dora, "a Space you cannot see")):
            sentence = f"{name} has ended and delivers its results: {self.FIGURES}."
            assert sentence in reader.get("/fleet/").content.decode()

    def test_to_programs_of_operators(self, otto: Client, attempt: runs.Attempt) -> None:
        (worker,) = otto.get("/api/v1/fleet/workers").json()["workers"]

        (told,) = worker["delivering"]
        assert (told["space"], told["lease"], told["files_here"]) == ("alice/bench", str(attempt.lease.pk), 1)

    def test_of_a_worker_that_is_away_nothing_is_claimed(self, otto: Client) -> None:
        Worker.objects.update(last_seen_at=ago(3600))

        assert "delivers its results" not in otto.get("/fleet/").content.decode()
        (card,) = otto.get("/spaces/").context["cards"]
        assert "is not heard from" in card.line
