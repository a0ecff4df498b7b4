"""Operators look at GPUs and at what is reserved on them; nothing can be typed in; one that failed can be trusted."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client
from django.urls import reverse

from jobs.lifecycle import claim_next
from jobs.models import AuditEvent
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, SpaceFactory, UserFactory
from workers.models import GOOD_REPORTS, Gpu

pytestmark = pytest.mark.django_db

LIST = "/admin/workers/gpu/"


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(UserFactory.create(username="otto", is_staff=True))
    return client


def card(**facts: Any) -> Gpu:
    return Gpu.objects.get(worker=GpuWorkerFactory.create(name="gpu1", gpus=[{"free_vram_mib": 24_564} | facts]))


def reserve(gpu: Gpu, mib: int) -> None:
    needs = RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=mib)
    JobFactory.create(requirement=needs, space=SpaceFactory.create(owner="alice", name="app"))
    assert claim_next(gpu.worker_id, session=1, free_gpu=9, free_cpu=0, key=str(mib)) is not None


def page(client: Client, gpu: Gpu) -> str:
    answer = client.get(reverse("admin:workers_gpu_change", args=[gpu.pk]))
    assert answer.status_code == 200
    return answer.content.decode()


def test_the_list_says_what_is_reserved_and_what_could_be_given(operator: Client) -> None:
    reserve(card(), 6_000)

    text = operator.get(LIST).content.decode()

    assert '<td class="field-reserved">6000</td>' in text
    assert f'<td class="field-available">{24_564 - 6_000 - 512}</td>' in text


def test_a_gpus_page_names_who_holds_how_much(operator: Client) -> None:
    gpu = card()
    reserve(gpu, 6_000)

    text = page(operator, gpu)

    assert "alice/app@0123456" in text
    assert "6000" in text


def test_what_is_out_of_the_ordinary_is_said(operator: Client) -> None:
    gpu = card(doubts=[{"code": "free_impossible", "mib": 30_720}])

    assert "Impossible reading, not used" in operator.get(LIST).content.decode()
    assert "Impossible reading, not used" in page(operator, gpu)


def test_nothing_can_be_typed_in(operator: Client) -> None:
    gpu = card()

    assert '<input type="text"' not in page(operator, gpu)
    answer = operator.post(reverse("admin:workers_gpu_change", args=[gpu.pk]), {"total_vram_mib": 1})
    assert answer.status_code == 403


def test_a_gpu_that_failed_is_trusted_again_on_an_operators_word(operator: Client) -> None:
    gpu = card(good_reports=0)
    form = {"action": "trust", "_selected_action": [gpu.pk]}

    text = operator.post(LIST, form, follow=True).content.decode()

    gpu.refresh_from_db()
    assert "1 GPU is used again." in text
    assert gpu.good_reports == GOOD_REPORTS
    assert AuditEvent.objects.get().actor_name == "otto"


def test_one_that_never_failed_needs_no_trust(operator: Client) -> None:
    form = {"action": "trust", "_selected_action": [card().pk]}

    assert "0 GPUs are used again." in operator.post(LIST, form, follow=True).content.decode()
    assert not AuditEvent.objects.exists()


def test_queries_do_not_grow_with_the_gpus(operator: Client, django_assert_max_num_queries: Any) -> None:
    for n in range(12):
        GpuWorkerFactory.create(name=f"gpu{n}")

    with django_assert_max_num_queries(20):
        operator.get(LIST)
