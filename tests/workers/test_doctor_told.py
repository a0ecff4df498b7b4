"""What a worker's doctor found: taken at register, replaced when a heartbeat tells it anew, shown to operators."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from tests.factories import UserFactory
from tests.workers.conftest import WireWorker

pytestmark = pytest.mark.django_db

MISSING = {"check": "gpu_runtime", "ok": False, "detail": "no toolkit", "remedy": "Install it."}
PRICE = {"check": "pid_namespace", "ok": None, "detail": "processes are not seen", "remedy": "Give it pid: host."}
FINE = {"check": "git", "ok": True, "detail": "/usr/bin/git", "remedy": None}


@pytest.fixture
def worker(enroll: Any) -> WireWorker:
    found: WireWorker = enroll(register=False)
    found.register(doctor=[MISSING, PRICE, FINE])
    return found


def read(path: str, **facts: Any) -> str:
    client = Client()
    client.force_login(UserFactory.create(**facts))
    answer = client.get(path)
    assert answer.status_code == 200
    return answer.content.decode()


def test_a_heartbeat_without_news_changes_nothing(worker: WireWorker) -> None:
    worker.heartbeat()
    worker.heartbeat(doctor=None)

    assert worker.row.doctor == [MISSING, PRICE, FINE]


def test_what_was_mended_is_gone_with_the_heartbeat_that_says_so(worker: WireWorker) -> None:
    assert "no toolkit" in read("/fleet/", is_staff=True)

    worker.heartbeat(doctor=[{**MISSING, "ok": True, "detail": "there", "remedy": None}, FINE])

    assert "no toolkit" not in read("/fleet/", is_staff=True)
    assert [check["ok"] for check in worker.row.doctor] == [True, True]


def test_a_list_without_an_end_is_refused(worker: WireWorker) -> None:
    assert worker.heartbeat(doctor=[FINE] * 101).status_code == 422
    assert worker.row.doctor == [MISSING, PRICE, FINE]


def test_an_operator_reads_every_check_in_the_admin(worker: WireWorker) -> None:
    page = read(f"/admin/workers/worker/{worker.id}/change/", is_staff=True, is_superuser=True)

    for text in ("no toolkit", "Install it.", "processes are not seen", "Give it pid: host.", "/usr/bin/git"):
        assert text in page


def test_an_operator_reads_on_the_fleet_page_what_can_be_mended_and_nothing_else(worker: WireWorker) -> None:
    nothing_to_do = {"check": "driver", "ok": None, "detail": "no NVIDIA GPU here", "remedy": None}
    worker.heartbeat(doctor=[MISSING, PRICE, FINE, nothing_to_do])

    page = read("/fleet/", is_staff=True)

    assert '(gpu_runtime): <span lang="en">no toolkit. Install it.</span>' in page
    assert '(pid_namespace): <span lang="en">processes are not seen. Give it pid: host.</span>' in page
    assert "no NVIDIA GPU here" not in page
    assert "/usr/bin/git" not in page


def test_a_stranger_who_only_looks_is_answered_with_a_code_by_which_the_doctor_knows_us() -> None:
    answer = Client().get("/api/v1/workers/register")

    assert answer.status_code in (401, 405)
    assert isinstance(answer.json()["code"], str)
