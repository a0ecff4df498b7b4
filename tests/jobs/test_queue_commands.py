"""`manage.py queue` and `manage.py jobs`: the line with its reasons, and what there is, for people and programs."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import CommandError, call_command

from jobs.models import Job
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, SpaceFactory
from tests.jobs.conftest import must_claim

pytestmark = pytest.mark.django_db


def said(*arguments: str) -> str:
    out = io.StringIO()
    call_command(*arguments, stdout=out)
    return out.getvalue()


def told(*arguments: str) -> list[Any]:
    return [json.loads(line) for line in said(*arguments, "--json").splitlines()]


def gpu_job(name: str, **more: Any) -> Job:
    needs = {"kind": "gpu", "gpu_count": 1, "exclusive": True, **more}
    return JobFactory.create(space=SpaceFactory.create(name=name), requirement=RequirementFactory.create(**needs))


def test_an_empty_queue_says_so() -> None:
    assert said("queue") == "Nothing waits.\n"
    assert said("queue", "--json") == ""


def test_each_job_has_its_place_and_a_sentence_per_worker_and_gpu() -> None:
    worker = GpuWorkerFactory.create(name="gpu1")
    gpu_job("first")
    must_claim(worker)
    gpu_job("second")
    gpu_job("third", worker=worker)

    lines = said("queue").splitlines()

    assert lines[0].startswith("1.   owner/second@0123456  needs 1 whole GPU  waits ")
    assert lines[1] == "     gpu1 / NVIDIA GeForce RTX 4090: reserved for owner/first"
    assert lines[2].startswith("2.   owner/third@0123456  needs 1 whole GPU on gpu1 only  waits ")
    assert lines[3].startswith("     An operator placed it on gpu1.")


def test_programs_read_the_same() -> None:
    job = gpu_job("first")
    last = JobFactory.create(attempts=3)

    first, beside = told("queue")

    assert (first["job"], first["place"], first["code"], first["workers"]) == (str(job.pk), 1, "no_worker", [])
    assert (beside["job"], beside["place"], beside["code"]) == (str(last.pk), None, "last_chance")


def test_what_is_not_shown_is_counted() -> None:
    JobFactory.create_batch(4)

    assert said("queue", "--limit", "3").endswith("… and 1 more in line.\n")
    for limit in ("0", "101"):
        with pytest.raises(CommandError, match="between 1 and 100"):
            said("queue", "--limit", limit)


def test_jobs_lists_what_is_not_over() -> None:
    worker = GpuWorkerFactory.create(name="gpu1")
    gpu_job("first")
    must_claim(worker)
    waits = gpu_job("second")
    JobFactory.create(state="failed")

    assert [(job["space"], job["state"], job["worker"]) for job in told("jobs")] == [
        ("owner/second", "queued", None),
        ("owner/first", "leased", "gpu1"),
    ]
    assert said("jobs").startswith(f"{waits.pk}  owner/second@0123456  queued for ")


def test_jobs_can_be_asked_by_space_state_and_worker() -> None:
    worker = GpuWorkerFactory.create(name="gpu1")
    gpu_job("first")
    must_claim(worker)
    failed = JobFactory.create(state="failed", reason_code="oom_killed", reason="It ran out of memory.")

    (found,) = told("jobs", "--state", "failed", "--state", "cancelled")
    assert (found["job"], found["reason_code"], found["reason"]) == (
        str(failed.pk),
        "oom_killed",
        "It ran out of memory.",
    )
    assert [job["space"] for job in told("jobs", "--worker", "GPU1")] == ["owner/first"]
    assert [job["job"] for job in told("jobs", "--space", str(failed.space).upper())] == [str(failed.pk)]
    assert told("jobs", "--space", "owner/nothing") == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--state", "asleep"], "There is no state asleep"),
        (["--space", "owner"], "OWNER/REPO"),
        (["--limit", "0"], "at least 1"),
    ],
)
def test_a_question_that_means_nothing_is_refused(arguments: list[str], sentence: str) -> None:
    with pytest.raises(CommandError, match=sentence):
        said("jobs", *arguments)


def test_a_reason_is_not_told_twice() -> None:
    GpuWorkerFactory.create(name="atlas", scheduling="draining")
    gpu_job("waits")

    lines = said("queue").splitlines()

    assert [line.strip() for line in lines if "atlas" in line] == ["atlas is draining: it takes no new jobs."]
