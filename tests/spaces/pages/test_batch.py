"""A benchmark computes and ends: it is shown as a run with a log and a result, never as an app."""

from __future__ import annotations

import pytest
from django.test import Client

from jobs.models import Job
from spaces.models import Space
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


@pytest.fixture
def attempt(alice: Client, worker: Worker) -> runs.Attempt:
    make_space("alice/bench", topics=("benchmark",))
    assert alice.post("/spaces/alice/bench/start").status_code == 303
    assert Job.objects.get().mode == "batch"
    return runs.claim(worker)


def page(client: Client) -> str:
    return str(client.get("/spaces/alice/bench/").content.decode())


def test_while_it_computes_its_log_is_shown_and_no_app(alice: Client, attempt: runs.Attempt) -> None:
    attempt.to_running().write("run", "epoch 3 of 10\n")

    text = page(alice)

    assert "Computing" in text
    assert "epoch 3 of 10" in text
    assert "<iframe" not in text
    assert "Open in own tab" not in text
    assert "data-live-ticks" in text


def test_a_good_end_is_completed_with_the_end_of_its_log(alice: Client, attempt: runs.Attempt) -> None:
    attempt.to_running().write("run", "score: 42\n").report("exited", code=0, oom_killed=False)

    text = page(alice)

    assert Job.objects.get().state == "completed"
    assert "CPU · Completed" in text
    assert "It is done" in text
    assert "score: 42" in text


@pytest.mark.parametrize("handed_back", [False, True], ids=["while it computes", "after it was handed back"])
def test_one_that_was_stopped_is_called_stopped_and_not_completed(
    alice: Client, attempt: runs.Attempt, handed_back: bool
) -> None:
    attempt.to_running()
    if handed_back:
        attempt.report("declined", reason="paused")
    alice.post("/spaces/alice/bench/stop")
    if not handed_back:
        attempt.report("stopped")

    assert Job.objects.get().state == "completed", "it ran"
    for tab in ("", "activity/", "results/"):
        text = alice.get(f"/spaces/alice/bench/{tab}").content.decode()
        assert "CPU · Stopped" in text
        assert "Completed" not in text and "It is done" not in text


def test_one_that_had_computed_all_before_the_stop_came_through_is_completed(
    alice: Client, attempt: runs.Attempt
) -> None:
    attempt.to_running()
    alice.post("/spaces/alice/bench/stop")

    attempt.report("exited", code=0, oom_killed=False)

    assert "CPU · Completed" in page(alice)


def test_a_bad_end_is_failed_with_the_end_of_its_log(alice: Client, attempt: runs.Attempt) -> None:
    attempt.to_running().write("run", "Traceback: no such file\n").report("exited", code=3, oom_killed=False)

    text = page(alice)

    assert Job.objects.get().state == "failed"
    assert "CPU · Failed" in text
    assert "Traceback: no such file" in text
    assert "a batch job succeeds when it exits with code 0" in text
    assert "A Space must go on running" not in text


def test_an_inference_space_is_a_service(alice: Client, worker: Worker) -> None:
    make_space("alice/llm", topics=("inference",))
    alice.post("/spaces/alice/llm/start")
    runs.claim(worker).to_running()

    assert (Job.objects.get().kind, Job.objects.get().mode) == ("inference", "service")
    assert "<iframe" in alice.get("/spaces/alice/llm/").content.decode()


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        (("space", "benchmark"), "The topics space, benchmark exclude each other: it runs as space."),
        (("space", "cpu", "gpu"), "The topics cpu and gpu exclude each other: it waits for a GPU."),
        (("space", "cpu", "cuda"), "The topic cpu says where it runs: cuda changes nothing there."),
        (("space", "gpu", "vram-0gb"), "The topic vram-0gb is no size that a GPU can have: ignored."),
        (("space", "gpu", "gpus-99"), "The topic gpus-99 is no number of GPUs between 1 and 16: ignored."),
        (("space", "vram-8gb", "vram-12gb"), "There are several topics vram-…: the largest counts, 11444 MiB."),
        (("space", "gpus-2", "gpus-4"), "There are several topics gpus-…: the largest counts, 4 GPUs."),
    ],
)
def test_each_contradiction_of_topics_is_told_to_the_owner(
    alice: Client, carol: Client, topics: tuple[str, ...], sentence: str
) -> None:
    space: Space = make_space("alice/odd", topics=topics)
    assert sentence in alice.get(f"/spaces/{space}/").content.decode()

    alice.post(f"/spaces/{space}/start")

    assert sentence in alice.get(f"/spaces/{space}/").content.decode()
    assert sentence not in carol.get(f"/spaces/{space}/").content.decode()
