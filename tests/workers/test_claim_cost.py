"""What a claim costs the database: a fixed number of statements, over the whole call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs.models import Job
from tests.factories import JobFactory, RequirementFactory, ago
from tests.workers.conftest import GPU, WireWorker
from workers.models import Worker

# Committed for real: in a test's own transaction, savepoints would be counted.
pytestmark = pytest.mark.django_db(transaction=True)

STATEMENTS = 10
CONTROL = ("BEGIN", "COMMIT")  # of the transaction, sent along
GPUS = [GPU, GPU | {"uuid": "GPU-2", "index": 1}]


def statements_of(call: Callable[[], Any], *, status: int = 200) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        answer = call()
    assert answer.status_code == status, answer.content
    return [query["sql"] for query in captured if query["sql"] not in CONTROL]


def gpu_job(count: int = 1, **facts: Any) -> Job:
    return JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=count), **facts)


@pytest.fixture
def worker(enroll: Any) -> WireWorker:
    found: WireWorker = enroll(gpus=GPUS)
    Worker.objects.update(gateway_status=Worker.Gateway.OK, gateway_url="http://127.0.0.1:8787")
    return found


def test_a_claim_of_two_gpus_is_ten_statements_from_credential_to_answer(worker: WireWorker) -> None:
    gpu_job(2)

    sql = statements_of(worker.claim)

    assert len(sql) <= STATEMENTS, "\n".join(sql)


def test_a_job_that_comes_back_into_the_line_costs_no_more(worker: WireWorker) -> None:
    gpu_job()
    first = worker.claim().json()
    declined = {"seq": 1, "kind": "declined", "reason": "shutdown"}
    assert worker.events(first, [declined]).status_code == 200
    assert worker.heartbeat().status_code == 200

    sql = statements_of(worker.claim)

    assert len(sql) <= STATEMENTS, "\n".join(sql)


def test_nor_does_one_whose_lease_has_expired_unreleased(worker: WireWorker, enroll: Any) -> None:
    gpu_job()
    first = worker.claim().json()
    Job.objects.filter(pk=first["id"]).update(state="queued", worker=None)  # as the keeper leaves it
    other = enroll("gpu2", gpus=[GPU | {"uuid": "GPU-3"}])
    Worker.objects.update(gateway_status=Worker.Gateway.OK, gateway_url="http://127.0.0.1:8787")

    sql = statements_of(other.claim)

    assert len(sql) <= STATEMENTS, "\n".join(sql)


def test_keeping_gpus_for_an_older_job_costs_no_more(worker: WireWorker) -> None:
    gpu_job()
    assert worker.claim().status_code == 200
    gpu_job(2, queued_at=ago(1_000))
    gpu_job()

    sql = statements_of(worker.claim, status=204)

    assert len(sql) <= STATEMENTS, "\n".join(sql)


def test_nor_does_taking_that_older_job_which_others_are_told_of(worker: WireWorker) -> None:
    gpu_job(2, queued_at=ago(1_000))

    sql = statements_of(worker.claim)

    assert len(sql) <= STATEMENTS, "\n".join(sql)


def test_an_answer_of_nothing_costs_less(worker: WireWorker) -> None:
    sql = statements_of(worker.claim, status=204)

    assert len(sql) < STATEMENTS, "\n".join(sql)
