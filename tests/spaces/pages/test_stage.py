"""The App tab says truly what goes on, to each visitor as much as he may know."""

from __future__ import annotations

import pytest
from django.test import Client

from jobs import lifecycle
from jobs.clock import database_now
from jobs.models import Job
from jobs.scheduling import RequirementSpec
from spaces.models import Space
from tests.factories import GpuWorkerFactory, UptimeFactory, ago
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


def page(client: Client, space: Space) -> str:
    answer = client.get(f"/spaces/{space}/")
    assert answer.status_code == 200
    return str(answer.content.decode())


@pytest.fixture
def space() -> Space:
    return make_space("alice/notes")


def test_a_space_without_a_run_offers_start(space: Space, alice: Client) -> None:
    text = page(alice, space)
    assert "CPU · On demand" in text
    assert 'action="/spaces/alice/notes/start"' in text


def test_without_a_worker_it_says_how_to_bring_one(space: Space, alice: Client) -> None:
    runs.submit(space)
    text = page(alice, space)
    assert "1st in line" in text
    assert "issue_enrollment_token" in text


def test_each_gpu_says_why_it_does_not_do(carol: Client) -> None:
    UptimeFactory.create()
    GpuWorkerFactory.create(
        name="atlas",
        gpus=[
            {"model": "NVIDIA GeForce RTX 4090"},
            {"model": "RTX 3060", "total_vram_mib": 12_287, "free_vram_mib": 2_300},
            {
                "model": "RTX 4090",
                "foreign": [{"pid": 48213, "name": "python3", "mib": 20_000}],
                "free_vram_mib": 4_000,
            },
        ],
    )
    holder = make_space("alice/holder", topics=("space", "gpu"))
    large = RequirementSpec(kind="gpu", gpu_count=1, vram_mib=19_073)
    runs.submit(holder, requirement=large)
    runs.claim(Worker.objects.get(name="atlas"))
    waits = make_space("alice/waits", topics=("space", "gpu"))
    runs.submit(waits, requirement=large)

    status = carol.get("/spaces/alice/waits/status.json").json()

    reasons = {row["gpu"]: (row["code"], row["never"]) for row in status["waiting"]["workers"]}
    assert status["waiting"]["place"] == 1
    assert reasons["GPU 1 RTX 3060"] == ("gpu_too_small", True)
    assert sorted(code for code, never in reasons.values() if not never) == ["gpu_foreign_use", "gpu_vram_reserved"]
    text = page(carol, waits)
    assert "reserved for alice/holder." in text
    assert "used by processes that are not ours" in text


def test_names_of_private_spaces_and_processes_are_not_told(carol: Client, otto: Client) -> None:
    UptimeFactory.create()
    GpuWorkerFactory.create(
        name="atlas",
        gpus=[{}, {"foreign": [{"pid": 48213, "name": "hushhush", "mib": 20_000}], "free_vram_mib": 4_000}],
    )
    hidden = make_space("dora/quiet", topics=("space", "gpu"), visibility="private")
    runs.submit(hidden, requirement=runs.GPU)
    runs.claim(Worker.objects.get(name="atlas"))
    waits = make_space("alice/waits", topics=("space", "gpu"))
    also = make_space("dora/silent", topics=("space", "gpu"), visibility="private")
    runs.submit(also, requirement=runs.GPU)
    runs.submit(waits, requirement=runs.GPU)

    for text in (page(carol, waits), carol.get("/spaces/alice/waits/status.json").content.decode()):
        assert "quiet" not in text
        assert "silent" not in text
        assert "hushhush" not in text
    assert "a Space you cannot see" in page(carol, waits)
    assert "A Space you cannot see" in page(carol, waits)
    assert "dora/quiet" in page(otto, waits)
    assert "hushhush, pid 48213" in page(otto, waits)


def test_a_build_shows_its_step_and_its_log(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).report("building")
    attempt.write("build", "#4 [1/3] FROM x\n#4 CACHED\n#5 [2/3] RUN pip install\n#5 1.2 Collecting <gradio>\n")
    text = page(alice, space)
    assert "Building, step 2 of 3" in text
    assert "Collecting &lt;gradio&gt;" in text


def test_a_later_build_is_measured_against_the_last_one(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    first = runs.claim(worker).to_running()
    Job.objects.filter(pk=first.job.pk).update(build_started_at=first.job.queued_at)
    lifecycle.request_stop(first.job.pk)
    first.report("stopped")
    runs.submit(space)
    runs.claim(worker).report("building")
    assert "Last build took" in page(alice, space)


def test_running_is_a_frame_on_the_runtime_origin(space: Space, alice: Client, worker: Worker, settings) -> None:
    settings.OPENFACE_RUNTIME_ORIGIN = "http://run.example"
    runs.submit(space)
    runs.claim(worker).to_running()
    assert '<iframe src="http://run.example/run/alice/notes/"' in page(alice, space)


def test_a_silent_worker_is_said_and_never_shown_as_running(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).to_running()
    lifecycle.mark_silent(attempt.job.pk, worker_name="cpu1", since=worker.last_seen_at, now=database_now())
    text = page(alice, space)
    assert "cpu1 is not heard from" in text
    assert "CPU · Unavailable" in text
    assert "Start elsewhere" in text
    assert "<iframe" not in text


def test_a_failed_build_shows_its_failing_step_first(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    attempt = runs.claim(worker).report("building")
    attempt.write(
        "build",
        "#4 [1/2] FROM x\n#4 DONE 0.1s\n#5 [2/2] RUN pip install\n#5 1.0 ERROR: no torch\n"
        "#5 ERROR: exit code: 1\n#6 later\n",
    )
    attempt.report("failed", reason="build_failed", detail="The build ended with exit code 1.")
    text = page(alice, space)
    assert "The build failed at step 2 of 2" in text
    assert "ERROR: no torch" in text
    assert "later" not in text
    assert "the one that failed" in text


def test_a_sentence_of_the_worker_is_shown_as_text(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    runs.claim(worker).report("failed", reason="new_code", detail="It said <b>no</b>.")
    text = page(alice, space)
    assert "It said &lt;b&gt;no&lt;/b&gt;." in text


def test_every_move_is_in_the_history(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    runs.claim(worker).to_running()
    alice.post("/spaces/alice/notes/stop")
    answer = alice.get("/spaces/alice/notes/activity/")
    moves = [move.state for run in answer.context["runs"] for move in run.moves]
    assert moves == ["stopping", "running", "starting", "building", "leased", "queued"]
    assert "Asked for by <b>alice</b>" in answer.content.decode()


def test_pages_without_scripts_look_again_while_something_moves(space: Space, alice: Client, worker: Worker) -> None:
    runs.submit(space)
    assert '<noscript><meta http-equiv="refresh"' in page(alice, space)
    runs.claim(worker).to_running()
    assert "http-equiv" not in page(alice, space)


def test_another_spelling_of_the_name_is_led_to_the_right_one(space: Space, alice: Client) -> None:
    answer = alice.get("/spaces/ALICE/Notes/logs/?stream=run")
    assert answer.status_code == 302
    assert answer["Location"] == "/spaces/alice/notes/logs/?stream=run"


def test_a_simulated_gpu_is_called_so_wherever_it_is_named(alice: Client) -> None:
    UptimeFactory()
    GpuWorkerFactory.create(name="atlas", gpus=[{"simulated": True}])
    space = make_space("alice/notes", topics=("space", "gpu"))
    runs.submit(space, requirement=runs.GPU)
    runs.claim(Worker.objects.get(name="atlas")).to_running()
    assert page(alice, space).count('<span class="tag">simulated</span>') == 2
    assert alice.get("/spaces/alice/notes/status.json").json()["gpus"][0]["simulated"] is True
    assert "(simulated)" in alice.get("/spaces/alice/notes/activity/").content.decode()


def test_the_owner_is_told_what_was_wrong_with_topics_and_readme(alice: Client, carol: Client) -> None:
    space = make_space("alice/notes", topics=("space", "gpu", "cpu"))
    alice.post("/spaces/alice/notes/start")
    told = "The topics cpu and gpu exclude each other: it waits for a GPU."
    assert told in page(alice, space)
    assert told not in page(carol, space)


def test_running_is_not_shown_of_a_silent_worker_even_while_the_keeper_is_down(
    space: Space, alice: Client, worker: Worker
) -> None:
    UptimeFactory()
    runs.submit(space)
    runs.claim(worker).to_running()
    assert "CPU · Running" in page(alice, space)
    Worker.objects.update(last_seen_at=ago(3600))
    assert Job.objects.get().state == "running"
    assert "CPU · Unavailable" in page(alice, space)
    assert "<iframe" not in page(alice, space)
    assert "CPU · Unavailable" in alice.get("/").content.decode()
    assert alice.get("/spaces/alice/notes/status.json").json()["state"] == "unavailable"


def test_the_status_for_scripts_may_be_asked_for_its_head_alone(carol: Client) -> None:
    make_space("alice/notes")
    answer = carol.head("/spaces/alice/notes/status.json")
    assert (answer.status_code, answer.content, answer["Content-Type"]) == (200, b"", "application/json")
    assert carol.post("/spaces/alice/notes/status.json").status_code == 405
