"""GET /api/v1/spaces/{owner}/{repo}/status: where a Space stands, in codes, and no more than its reader may know."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs.lifecycle import cut_off_worker
from spaces import placement, words
from spaces.models import Space
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, UptimeFactory
from tests.spaces.pages import runs
from tests.spaces.repositories import make_space
from workers.models import Worker

pytestmark = pytest.mark.django_db


def status(client: Client, space: str) -> Any:
    answer = client.get(f"/api/v1/spaces/{space}/status")
    assert answer.status_code == 200
    return answer.json()


def test_a_space_that_waits_tells_place_needs_and_reasons(carol: Client) -> None:
    UptimeFactory.create()
    GpuWorkerFactory.create(name="atlas", scheduling="draining")
    space = make_space("alice/notes", topics=("space", "gpu"))
    placement.place(space.pk, placement.wish("worker", "atlas"), actor=None)
    job = runs.submit(space, requirement=placement.requirement_of(Space.objects.get()))

    found = status(carol, "alice/notes")

    assert (found["state"], found["mode"], found["job"]) == ("queued", "service", str(job.pk))
    assert found["placement"] == {"placement": "worker", "worker": "atlas"}
    assert found["waiting"] == {
        "code": "named_worker_waits",
        "detail": words.waiting("named_worker_waits"),
        "place": 1,
        "place_capped": False,
        "needs": "a whole GPU, on atlas only",
        "workers": [
            {
                "worker": "atlas",
                "gpu": "GPU 0 RTX 4090",
                "code": "worker_draining",
                "reason": "Draining: takes no new jobs.",
                "never": False,
            }
        ],
    }


def test_what_put_a_space_into_the_line_is_not_why_it_waits_now(carol: Client, worker: Worker) -> None:
    UptimeFactory.create()
    runs.submit(make_space("alice/notes"))
    attempt = runs.claim(worker)
    cut_off_worker(worker.pk, reason_code="gpu_workers_disabled", reason="They were switched off.", cleared=True)
    attempt.job.refresh_from_db()
    assert (attempt.job.state, attempt.job.reason_code) == ("queued", "gpu_workers_disabled")

    found = status(carol, "alice/notes")

    assert found["waiting"]["code"] == "about_to_start"
    assert (found["reason_code"], found["reason"]) == ("", "")


def test_the_place_is_counted_to_a_hundred(carol: Client) -> None:
    JobFactory.create_batch(101)
    runs.submit(make_space("alice/notes"))

    waiting = status(carol, "alice/notes")["waiting"]

    assert (waiting["place"], waiting["place_capped"]) == (101, True)


def test_names_of_private_spaces_and_processes_are_for_those_who_may_know(carol: Client, otto: Client) -> None:
    UptimeFactory.create()
    GpuWorkerFactory.create(
        name="atlas",
        gpus=[{}, {"foreign": [{"pid": 48213, "name": "hushhush", "mib": 20_000}], "free_vram_mib": 4_000}],
    )
    runs.submit(make_space("dora/quiet", visibility="private"), requirement=runs.GPU)
    runs.claim(Worker.objects.get(name="atlas"))
    runs.submit(make_space("alice/waits"), requirement=runs.GPU)

    for_carol, for_otto = str(status(carol, "alice/waits")), str(status(otto, "alice/waits"))

    assert "quiet" not in for_carol and "hushhush" not in for_carol
    assert "a Space you cannot see" in for_carol
    assert "dora/quiet" in for_otto and "hushhush, pid 48213" in for_otto


def test_why_its_owner_paused_a_worker_is_for_operators(passer_by: Client, otto: Client) -> None:
    UptimeFactory.create()
    GpuWorkerFactory.create(name="atlas", accepting=False, paused_reason="rendering secret-film")
    runs.submit(make_space("alice/waits"), requirement=runs.GPU)

    (told,) = status(passer_by, "alice/waits")["waiting"]["workers"]
    (known,) = status(otto, "alice/waits")["waiting"]["workers"]

    assert (told["reason"], known["reason"]) == (
        "Takes no jobs for the moment.",
        "Takes no jobs for the moment. (rendering secret-film)",
    )
    assert "secret-film" not in passer_by.get("/spaces/alice/waits/").content.decode()


def test_a_process_without_a_number_is_named_without_one(otto: Client) -> None:
    UptimeFactory.create()
    foreign = [{"pid": None, "name": "blender", "mib": 20_000}]
    GpuWorkerFactory.create(name="atlas", gpus=[{"foreign": foreign, "free_vram_mib": 4_000}])
    runs.submit(make_space("alice/waits"), requirement=runs.GPU)

    (row,) = status(otto, "alice/waits")["waiting"]["workers"]

    assert row["reason"].endswith("(blender)")


def test_the_older_job_for_which_gpus_are_kept_is_named_only_to_who_may_know(
    carol: Client, otto: Client, settings: Any
) -> None:
    UptimeFactory.create()
    settings.OPENFACE_PATIENCE_SECONDS = 0
    GpuWorkerFactory.create(name="atlas", gpus=[{}, {}])
    runs.submit(make_space("alice/small"), requirement=runs.GPU)
    runs.claim(Worker.objects.get(name="atlas"))
    two = RequirementFactory.create(kind="gpu", gpu_count=2, exclusive=True)
    JobFactory.create(space=make_space("dora/large", visibility="private"), requirement=two)
    runs.submit(make_space("alice/behind"), requirement=runs.GPU)

    (row,) = {row["reason"] for row in status(carol, "alice/behind")["waiting"]["workers"]}
    assert row.startswith("Keeps its GPUs for a Space you cannot see, which has waited for ")
    (row,) = {row["reason"] for row in status(otto, "alice/behind")["waiting"]["workers"]}
    assert row.startswith("Keeps its GPUs for dora/large, which has waited for ")


def test_missing_and_not_yours_are_the_same_404(passer_by: Client) -> None:
    make_space("dora/quiet", visibility="private")

    answers = [passer_by.get(f"/api/v1/spaces/{name}/status") for name in ("dora/quiet", "dora/nothing", "a/b%00")]

    assert {answer.status_code for answer in answers} == {404}
    assert {answer.content for answer in answers} == {b'{"code": "not_found", "detail": "There is nothing here."}'}


def test_it_is_only_read(carol: Client) -> None:
    make_space("alice/notes")
    assert carol.post("/api/v1/spaces/alice/notes/status").status_code == 405
    assert carol.head("/api/v1/spaces/alice/notes/status").status_code == 200
