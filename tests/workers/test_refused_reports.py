"""A worker whose reports are refused is alive and of no use: it is said why, and it gets no jobs until one is taken."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from django.core.management import call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from jobs import rescue
from jobs.clock import database_now
from jobs.models import Job, Lease
from jobs.waiting import why_waiting
from openface.context import read_pulse
from spaces import why
from spaces.why import Reader
from tests.factories import JobFactory, RequirementFactory, UserFactory, ago
from tests.workers.conftest import GPU, WireWorker
from workers import standing
from workers.models import Worker
from workers.overview import line_of

pytestmark = pytest.mark.django_db

Enroll = Any
NAMELESS = {"gpus": [{"model": "RTX 4090"}]}
FIELD = "gpus[0].uuid: This field is required"


def signed_in(**facts: Any) -> Client:
    client = Client()
    client.force_login(UserFactory.create(**facts))
    return client


def gpu_job() -> Job:
    return JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))


def refused(worker: WireWorker, **wrong: Any) -> None:
    answer = worker.heartbeat(**(wrong or NAMELESS))
    assert answer.status_code == 422, answer.content


class TestWhereItIsSaid:
    def test_the_fleet_page_shows_it_first_and_tells_operators_which_field(self, worker: WireWorker) -> None:
        refused(worker)
        Worker.objects.update(refused_since=ago(12 * 60))

        operator, visitor = (signed_in(is_staff=staff).get("/fleet/").content.decode() for staff in (True, False))

        assert f"Its reports have been refused as invalid for 12 min: {FIELD}." in operator
        assert "Its reports have been refused for 12 min." in visitor and "uuid" not in visitor
        assert "Reports refused" in operator and "Online</span>" not in operator

    def test_it_does_not_count_as_online(self, worker: WireWorker) -> None:
        assert read_pulse().online == 1

        refused(worker)

        assert read_pulse().online == 0
        assert line_of(worker.row)[0].look == "refused"

    def test_the_api_tells_field_and_time(self, worker: WireWorker) -> None:
        refused(worker)

        (found,) = signed_in(is_staff=True).get("/api/v1/fleet/workers").json()["workers"]

        assert (found["standing"], found["online"]) == ("refused", True)
        assert found["refused"] == {
            "since": worker.row.refused_since.isoformat(),
            "errors": [{"field": "gpus[0].uuid", "detail": "This field is required."}],
        }

    def test_the_command_and_the_admin_say_the_same(self, worker: WireWorker) -> None:
        refused(worker)
        said = f"reports refused since {worker.row.refused_since:%Y-%m-%d %H:%M} UTC: {FIELD}"

        out = io.StringIO()
        call_command("workers", stdout=out)
        admin = signed_in(is_staff=True).get("/admin/workers/worker/").content.decode()

        assert said in out.getvalue()
        assert said in admin

    def test_a_job_that_waits_names_it_as_the_reason(self, worker: WireWorker) -> None:
        job = gpu_job()
        refused(worker)

        waiting = why_waiting(job)

        assert waiting is not None and waiting.code == "reports_refused"
        now = database_now()
        (operator,) = why.rows(waiting, reader=Reader((), operator=True), now=now)
        (visitor,) = why.rows(waiting, reader=Reader(()), now=now)
        assert visitor.sentence == "Its reports are refused as invalid, so it gets no jobs."
        assert operator.sentence == f"{visitor.sentence} ({FIELD})"


class TestWhatItMeans:
    def test_it_gets_no_jobs(self, worker: WireWorker) -> None:
        gpu_job()
        refused(worker)

        assert worker.claim().status_code == 204

    def test_its_leases_run_out_although_it_is_alive(self, worker: WireWorker) -> None:
        job = gpu_job()
        claimed = worker.claim().json()
        Lease.objects.update(expires_at=ago(1))

        refused(worker, holds=[{"lease": claimed["lease"], "state": "asleep"}])
        rescue.sweep()

        job.refresh_from_db()
        assert (job.state, job.reason_code) == ("queued", "lease_expired")
        assert line_of(worker.row)[0].online

    def test_nobody_knows_whether_it_is_drained(self, worker: WireWorker) -> None:
        standing.drain(worker.row_id, actor=None)
        worker.heartbeat()
        assert line_of(worker.row)[0].drained

        refused(worker)

        drain = line_of(worker.row)[0].drain
        assert drain is not None and drain.complete is None


class TestHowLong:
    def test_from_the_first_refusal_on(self, worker: WireWorker) -> None:
        refused(worker)
        first = worker.row.refused_since

        refused(worker, gpus=[GPU, GPU])

        assert worker.row.refused_since == first
        assert worker.row.refused_errors == [["gpus", "The same UUID is listed twice."]]

    def test_until_a_heartbeat_is_taken(self, worker: WireWorker) -> None:
        gpu_job()
        refused(worker)

        worker.heartbeat()

        assert (worker.row.refused_since, worker.row.refused_errors) == (None, None)
        assert worker.claim().status_code == 200

    def test_or_a_start(self, worker: WireWorker) -> None:
        refused(worker)

        worker.register()

        assert worker.row.refused_since is None

    def test_a_start_that_is_refused_is_noted_too(self, worker: WireWorker) -> None:
        answer = worker.post("register", {"gpus": [], "holds": []})

        assert answer.status_code == 422
        assert worker.row.refused_errors == [["capabilities", "This field is required."]]

    def test_so_is_a_body_that_is_no_json_but_it_is_no_sign_of_life(self, worker: WireWorker) -> None:
        Worker.objects.update(last_seen_at=None)

        answer = worker.post(f"{worker.id}/heartbeat", "{")

        assert answer.status_code == 400
        assert worker.row.refused_errors == [["body", "The body is not valid JSON."]]
        assert worker.row.last_seen_at is None

    def test_what_was_overtaken_by_a_good_heartbeat_is_not_noted(self, worker: WireWorker) -> None:
        for _ in range(3):
            worker.heartbeat()

        worker.beat = 1
        refused(worker)

        assert worker.row.refused_since is None

    def test_nor_is_what_an_older_session_says(self, worker: WireWorker) -> None:
        older = worker.session
        worker.register()

        answer = worker.post(f"{worker.id}/heartbeat", {"session": older, "beat": 9, **NAMELESS})

        assert answer.status_code == 409
        assert worker.row.refused_since is None


class TestWhatItCosts:
    def test_one_narrow_statement(self, worker: WireWorker) -> None:
        with CaptureQueriesContext(connection) as captured:
            refused(worker)

        verbs = [query["sql"].split()[0] for query in captured]
        assert verbs == ["SELECT", "UPDATE", "UPDATE"], captured.captured_queries  # who, alive, refused

    def test_one_that_is_wrong_in_a_new_way_each_time_is_noted_now_and_then(self, worker: WireWorker) -> None:
        for number in range(6):
            refused(worker, gpus=[*[GPU] * number, {"uuid": ""}])

        assert [field for field, _sentence in worker.row.refused_errors or ()] == ["gpus[2].uuid"]

    def test_a_thousand_wrong_fields_are_told_as_a_few(self, worker: WireWorker) -> None:
        refused(worker, gpus=[{"uuid": "x" * 500}] * 100)

        assert len(worker.row.refused_errors or ()) == 5
        assert len(json.dumps(worker.row.refused_errors)) < 2_000
