"""A GPU that left its machine is shown as gone with its time, and forgotten on an operator's word, until it is back."""

from __future__ import annotations

from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs import offers
from jobs.models import AuditEvent, Reservation
from jobs.waiting import why_waiting
from tests.factories import JobFactory, RequirementFactory, UserFactory
from tests.workers.conftest import GPU, WireWorker
from workers import gpus
from workers.models import Gpu, Worker

pytestmark = pytest.mark.django_db

Enroll = Any
LIST = "/admin/workers/gpu/"
OTHER = GPU | {"uuid": "GPU-0b7c1c52-3f0e-4d8a-9a55-3b1f6c1f2d11", "index": 1, "model": "NVIDIA GeForce RTX 3060"}


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    """A machine with two cards, one of which is taken out."""
    found: WireWorker = enroll("gpu1", local=True, gpus=[GPU, OTHER], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    found.gpus = [GPU]
    found.heartbeat()
    return found


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(UserFactory.create(username="otto", is_staff=True))
    return client


def gone() -> Gpu:
    return Gpu.objects.get(uuid=OTHER["uuid"])


def offered(worker: WireWorker) -> list[str]:
    (offer,) = offers.offers_for([worker.row_id])
    return [gpu.uuid for gpu in offer.gpus]


def test_operators_are_told_since_when_it_is_gone(worker: WireWorker, operator: Client) -> None:
    when = gone().reported_at
    worker.heartbeat()
    assert gone().reported_at == when, "the time of its last report"

    page = operator.get("/fleet/").content.decode()
    (told,) = operator.get("/api/v1/fleet/workers").json()["workers"]

    said = f"GPU 1 RTX 3060: The driver does not list it any more. Gone since {when:%Y-%m-%d %H:%M} UTC."
    assert said in page
    assert [(each["uuid"], each["reported_at"]) for each in told["gone_gpus"]] == [(gone().uuid, when.isoformat())]
    assert "Gone since" in operator.get(LIST).content.decode()


def test_a_gone_gpu_costs_no_statement_with_each_heartbeat(worker: WireWorker) -> None:
    with CaptureQueriesContext(connection) as captured:
        worker.heartbeat()

    written = [
        query["sql"] for query in captured if query["sql"].startswith("UPDATE") and "workers_gpu" in query["sql"]
    ]
    assert written == []


def test_forgetting_it_takes_it_out_of_every_list(worker: WireWorker, operator: Client) -> None:
    job = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=2))
    assert OTHER["uuid"] in offered(worker)

    form = {"action": "forget", "_selected_action": [gone().pk]}
    said = operator.post(LIST, form, follow=True).content.decode()

    assert "1 GPU is forgotten." in said
    assert offered(worker) == [GPU["uuid"]]
    assert "RTX 3060" not in operator.get("/fleet/").content.decode()
    waiting = why_waiting(job)
    assert waiting is not None and waiting.code == "no_compatible_worker", "it waits for no card that will never come"
    (event,) = AuditEvent.objects.filter(act="gpu_forgotten")
    assert (event.actor_name, event.after) == ("otto", {"gpu": OTHER["uuid"]})


def test_what_its_worker_lists_cannot_be_forgotten(worker: WireWorker, operator: Client) -> None:
    form = {"action": "forget", "_selected_action": [Gpu.objects.get(uuid=GPU["uuid"]).pk]}

    said = operator.post(LIST, form, follow=True).content.decode()

    assert "0 GPUs are forgotten. 1 is not:" in said
    assert offered(worker)[0] == GPU["uuid"]


def test_nor_one_on_which_something_is_reserved(worker: WireWorker) -> None:
    JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    claimed = worker.claim().json()
    worker.heartbeat(gpus=[], holds=[{"lease": claimed["lease"], "state": "running"}])
    card = Gpu.objects.get(uuid=GPU["uuid"])

    assert gpus.forget(card.pk) is False

    worker.events(claimed, [{"seq": 1, "kind": "failed", "reason": "gpu_gone", "detail": ""}])
    worker.heartbeat(gpus=[], holds=[])
    assert gpus.forget(card.pk) is True
    assert Reservation.objects.filter(gpu=card).exists(), "history stays"


def test_it_is_back_as_soon_as_its_worker_lists_it(worker: WireWorker) -> None:
    assert gpus.forget(gone().pk) is True
    assert gpus.forget(gone().pk) is False, "twice is once"

    worker.heartbeat(gpus=[GPU, OTHER])

    assert gone().forgotten_at is None
    assert offered(worker) == [GPU["uuid"], OTHER["uuid"]]
