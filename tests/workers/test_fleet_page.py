"""The fleet page: every worker with its GPUs, for whoever is signed in; private names and details stay private."""

from __future__ import annotations

from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from jobs.models import Job
from spaces.models import LocalRepository, Visibility
from tests.factories import (
    GpuFactory,
    GpuWorkerFactory,
    JobFactory,
    RequirementFactory,
    UserFactory,
    WorkerFactory,
    ago,
)
from tests.workers.conftest import GPU, WireWorker
from workers.models import Worker

pytestmark = pytest.mark.django_db

Enroll = Any


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll(
        "gpu1", gpus=[GPU | {"temperature_c": 84.4, "utilization_pct": 74}], gateway_url="http://127.0.0.1:18787"
    )
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


def signed_in(**facts: Any) -> Client:
    client = Client()
    client.force_login(UserFactory.create(**facts))
    return client


def fleet(client: Client) -> str:
    answer = client.get("/fleet/")
    assert answer.status_code == 200
    return answer.content.decode()


def job_of(owner: str, name: str) -> Job:
    repository = LocalRepository.objects.create(
        owner=owner, name=name, visibility=Visibility.PRIVATE, topics=["space", "gpu"]
    )
    needs = RequirementFactory.create(kind="gpu", gpu_count=1)
    return JobFactory.create(
        space__repository_id=str(repository.pk),
        space__owner=owner,
        space__name=name,
        space__visibility=Visibility.PRIVATE,
        requirement=needs,
    )


def test_strangers_are_sent_to_sign_in() -> None:
    answer = Client().get("/fleet/")

    assert (answer.status_code, answer.headers["Location"]) == (302, "/login/?next=/fleet/")


def test_an_empty_fleet_says_what_to_do_next() -> None:
    assert "issue_enrollment_token" in fleet(signed_in(is_staff=True))
    assert "No worker yet." in fleet(signed_in())


def test_a_worker_is_shown_with_its_gpu_and_what_is_on_it(worker: WireWorker) -> None:
    job_of("alice", "matrix")
    worker.claim()

    page = fleet(signed_in(is_staff=True))

    for piece in ("gpu1", "Online", "RTX 4090 24 GB", "84 °C", "hot", "74 %", "alice/matrix", "whole GPU", "1 of 6"):
        assert piece in page, piece


def test_a_private_name_is_said_to_its_readers_only(worker: WireWorker) -> None:
    job_of("alice", "matrix")
    worker.claim()

    assert "alice/matrix" in fleet(signed_in(username="alice"))
    stranger = fleet(signed_in(username="bob"))
    assert "alice/matrix" not in stranger
    assert "a Space you cannot see" in stranger


def test_processes_of_the_machine_are_the_operators_business(worker: WireWorker) -> None:
    worker.heartbeat(gpus=[GPU | {"free_vram_mib": 3072, "foreign": [{"pid": 4711, "name": "python", "mib": 21504}]}])

    visitor, operator = fleet(signed_in()), fleet(signed_in(is_staff=True))

    assert "21.0 GB" in visitor and "4711" not in visitor
    assert "python, pid 4711" in operator
    assert "127.0.0.1:18787" in operator and "18787" not in visitor


def test_what_a_worker_says_of_its_pause_is_the_operators_business(worker: WireWorker) -> None:
    worker.heartbeat(accepting=False, paused_reason="rendering secret-film")

    visitor, operator = fleet(signed_in()), fleet(signed_in(is_staff=True))

    assert "secret-film" not in visitor and "Takes no jobs for the moment." in visitor
    assert "Paused: rendering secret-film" in operator


def test_what_needs_a_look_comes_first() -> None:
    WorkerFactory.create(name="fine")
    WorkerFactory.create(name="leaving", scheduling=Worker.Scheduling.DRAINING, inventory=[])
    WorkerFactory.create(name="gone", last_seen_at=ago(3600), expected_online="Mon–Fri 9–18")

    page = fleet(signed_in())

    order = [page.index(f"{name} <span") for name in ("gone", "leaving", "fine")]
    assert order == sorted(order)
    assert "Mon–Fri 9–18" in page
    assert "Drained: safe to switch off." in page


def test_revoked_workers_are_not_shown() -> None:
    WorkerFactory.create(name="sold", revoked_at=ago(10))

    assert "sold" not in fleet(signed_in())


def test_two_workers_with_one_machine_id_are_pointed_out() -> None:
    for name in ("one", "two"):
        WorkerFactory.create(name=name, capabilities={"machine_hint": "b7d1c0a2"})

    page = fleet(signed_in(is_staff=True))

    assert "machine id as two" in page and "machine id as one" in page


def test_failed_checks_are_shown_with_their_remedy_to_operators(enroll: Enroll) -> None:
    worker = enroll(register=False)
    worker.register(doctor=[{"check": "gpu_runtime", "ok": False, "detail": "no toolkit", "remedy": "Install it."}])

    operator = signed_in(is_staff=True)
    said = '(gpu_runtime): <span lang="en">no toolkit. Install it.</span>'
    assert f"GPUs in containers {said}" in fleet(operator)
    operator.cookies[settings.LANGUAGE_COOKIE_NAME] = "ja"
    assert f"コンテナでの GPU の利用 {said}" in fleet(operator)
    assert "gpu_runtime" not in fleet(signed_in())


def test_simulated_gpus_are_labelled_and_never_counted(enroll: Enroll) -> None:
    enroll("sim", gpus=[GPU | {"simulated": True}])

    page = fleet(signed_in(is_staff=True))

    assert '<span class="tag">simulated</span>' in page
    assert "VRAM reserved" not in page


def test_a_name_cannot_bring_markup_along() -> None:
    GpuWorkerFactory.create(name="gpu1", gpus=[{"model": "<script>alert(1)</script>"}])

    assert "<script>alert" not in fleet(signed_in(is_staff=True))


def test_the_page_has_no_inline_style() -> None:
    GpuWorkerFactory.create(name="gpu1")

    assert "style=" not in fleet(signed_in(is_staff=True))


def test_its_list_can_be_asked_for_alone(worker: WireWorker) -> None:
    part = signed_in().get("/fleet/?part=list").content.decode()

    assert part.lstrip().startswith('<div id="fleet"') and "<html" not in part


def test_queries_do_not_grow_with_the_fleet(django_assert_max_num_queries: Any) -> None:
    for n in range(12):
        worker = GpuWorkerFactory.create(name=f"gpu{n}")
        GpuFactory.create(worker=worker, index=1)
    client = signed_in(is_staff=True)

    with django_assert_max_num_queries(25):
        fleet(client)
