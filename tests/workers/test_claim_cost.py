"""What a claim costs the database: a fixed number of statements, over the whole call."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests.factories import JobFactory, RequirementFactory
from tests.workers.conftest import GPU, WireWorker
from workers.models import Worker

# Committed for real: in a test's own transaction, savepoints would be counted.
pytestmark = pytest.mark.django_db(transaction=True)

STATEMENTS = 10
CONTROL = ("BEGIN", "COMMIT")  # of the transaction, sent along
GPUS = [GPU, GPU | {"uuid": "GPU-2", "index": 1}]


def statements_of(call: Any) -> list[str]:
    with CaptureQueriesContext(connection) as captured:
        answer = call()
    assert answer.status_code == 200, answer.content
    return [query["sql"] for query in captured if query["sql"] not in CONTROL]


@pytest.fixture
def worker(enroll: Any) -> WireWorker:
    found: WireWorker = enroll(gpus=GPUS)
    Worker.objects.update(gateway_status=Worker.Gateway.OK, gateway_url="http://127.0.0.1:8787")
    return found


def test_a_claim_of_a_gpu_job_is_ten_statements_from_credential_to_answer(worker: WireWorker) -> None:
    JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=2))

    sql = statements_of(worker.claim)
    assert len(sql) <= STATEMENTS, "\n".join(sql)
