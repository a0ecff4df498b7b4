"""A GPU whose memory an ended app has not given back is held, until it is back or an operator frees the GPU, once."""

from __future__ import annotations

import io
import json
import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.models import AuditEvent, Job, Lease, Reservation
from jobs.states import JobState
from tests.factories import JobFactory, RequirementFactory, UserFactory
from tests.workers.conftest import GPU, WireWorker
from tests.workers.taken_jobs import drain_of, name_of, taken
from workers import offers, standing, unreleased
from workers.errors import WrongStanding
from workers.models import Worker
from workers.overview import line_of

pytestmark = pytest.mark.django_db

Enroll = Any
LIST = "/admin/workers/worker/"
LEFT = "GPU 0 has not released 5120 MiB of alice/app, which has ended: held by process 4711 of its container."
STRAY = "e91b5c37-48fa-4c16-a2de-70b8d3f95a12"


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("gpu1", gpus=[GPU], gateway_url="http://127.0.0.1:18787")
    found.register(gpu=1)
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(UserFactory.create(username="olga", is_staff=True))
    return client


def hold(lease: str, reason: str | None = LEFT) -> dict[str, Any]:
    return {"lease": lease, "state": "exited", "kind": "gpu", "gpus": [str(GPU["uuid"])], "reason": reason}


def ended(worker: WireWorker, *, used_mib: int = 0) -> str:
    """The lease of an app that has ended here, and of which the worker says that its memory is not back."""
    _job, claimed = taken(worker)
    worker.events(claimed, [{"seq": 4, "kind": "exited", "code": 0, "oom_killed": False}])
    lease: str = claimed["lease"]
    free = 24_100 - used_mib
    worker.gpus = [GPU | {"free_vram_mib": free, "ours": [{"lease": lease, "mib": used_mib}] if used_mib else []}]
    worker.heartbeat(holds=[hold(lease)])
    return lease


def freed(worker: WireWorker, lease: str, **more: Any) -> None:
    unreleased.free(worker.row_id, uuid.UUID(lease), actor=None, **more)


def gpu_job(vram_mib: int | None = None) -> Job:
    need = RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=vram_mib, exclusive=vram_mib is None)
    return JobFactory.create(requirement=need)


class TestTheWord:
    def test_the_gpu_is_given_again_although_the_worker_goes_on_listing_the_lease(self, worker: WireWorker) -> None:
        lease = ended(worker)
        job = gpu_job()
        assert worker.claim().status_code == 204, "it is held, and it is the only place"

        freed(worker, lease)

        assert worker.claim().json()["id"] == str(job.pk)
        answer = worker.heartbeat(holds=[hold(lease)]).json()
        assert [each["want"] for each in answer["leases"] if each["lease"] == lease] == ["remove"]
        assert not Reservation.objects.filter(lease=uuid.UUID(lease), cleared_at=None).exists()

    def test_what_is_really_used_still_counts(self, worker: WireWorker) -> None:
        lease = ended(worker, used_mib=5_120)
        freed(worker, lease)
        whole, part = gpu_job(), gpu_job(8_000)

        claimed = worker.claim().json()

        assert claimed["id"] == str(part.pk), "the one that wants the whole GPU waits, the other gets of the rest"
        assert Job.objects.get(pk=whole.pk).state == JobState.QUEUED
        (offer,) = offers.offers_for([worker.row_id])
        assert offer.gpus[0].foreign == ((0, "an app that has ended", 5_120),)

    def test_it_counts_once_and_a_later_app_is_waited_for_again(self, worker: WireWorker) -> None:
        freed(worker, first := ended(worker))
        worker.heartbeat(holds=[])
        second = ended(worker)

        gpu_job()

        assert first != second
        assert worker.claim().status_code == 204

    def test_it_is_remembered_over_a_restart_of_the_worker_and_forgotten_with_the_memory(
        self, worker: WireWorker
    ) -> None:
        lease = ended(worker)
        freed(worker, lease)

        worker.register(holds=[hold(lease, reason=None)], gpu=1)
        worker.heartbeat(holds=[hold(lease)])
        assert [one.freed for one in unreleased.on(worker.row)] == [True]

        worker.heartbeat(holds=[])
        assert worker.row.hold_facts == {}

    def test_draining_does_not_wait_for_it(self, worker: WireWorker) -> None:
        lease = ended(worker)
        standing.drain(worker.row_id, actor=None)
        assert drain_of(worker).complete is False

        freed(worker, lease)

        assert drain_of(worker).complete is True

    def test_a_lease_that_nobody_knows_gives_its_gpu_and_its_place_back_too(self, worker: WireWorker) -> None:
        worker.heartbeat(holds=[hold(STRAY)])
        job = gpu_job()
        assert worker.claim().status_code == 204

        freed(worker, STRAY)

        assert worker.claim().json()["id"] == str(job.pk)

    def test_twice_is_once_and_audited_once_with_what_the_worker_said(self, worker: WireWorker) -> None:
        lease = ended(worker)

        for _ in range(2):
            freed(worker, lease, reason="nvidia-smi shows nothing", address="10.0.0.7")

        (event,) = AuditEvent.objects.filter(act="gpu_memory_written_off")
        assert (event.object_name, event.reason, event.address) == ("gpu1", "nvidia-smi shows nothing", "10.0.0.7")
        assert event.after == {"lease": lease, "said": LEFT}


class TestWhatIsRefused:
    def test_a_lease_that_may_still_run_its_job(self, worker: WireWorker) -> None:
        _job, claimed = taken(worker)
        worker.heartbeat(holds=[hold(claimed["lease"])])

        with pytest.raises(WrongStanding, match="still valid: stop its job first"):
            freed(worker, claimed["lease"])
        assert Lease.objects.get(pk=claimed["lease"]).cleared_at is None

    def test_a_lease_of_which_the_worker_tells_no_such_thing(self, worker: WireWorker) -> None:
        lease = ended(worker)
        worker.heartbeat(holds=[hold(lease, reason=None)])

        with pytest.raises(WrongStanding, match="tells of no GPU memory"):
            freed(worker, lease)

    def test_a_revoked_worker(self, worker: WireWorker) -> None:
        lease = ended(worker)
        standing.revoke(worker.row_id, actor=None)

        with pytest.raises(WrongStanding, match="revoked"):
            freed(worker, lease)


class TestWhereItIsSaid:
    def test_an_operator_reads_what_becomes_of_memory_that_is_still_used(
        self, worker: WireWorker, operator: Client
    ) -> None:
        lease = ended(worker)
        assert LEFT in operator.get("/fleet/").content.decode()

        freed(worker, lease)

        said = f"{LEFT}</span> An operator has freed the GPU: what is still used there counts as use by others."
        assert said in operator.get("/fleet/").content.decode()

    def test_by_api_for_operators_and_nobody_else(self, worker: WireWorker, operator: Client) -> None:
        lease = ended(worker)
        path = f"/api/v1/fleet/workers/gpu1/not_released/{lease}/free"
        visitor = Client()
        visitor.force_login(UserFactory.create())
        for caller in (visitor, Client(headers={"Authorization": f"Bearer {worker.credential}"})):
            assert caller.post(path).status_code in (401, 403)
        assert not unreleased.freed(worker.row)

        answer = operator.post(path, {"reason": "x"}, "application/json")

        assert answer.status_code == 200, answer.content
        assert answer.json()["not_released"] == [{"lease": lease, "reason": LEFT, "freed": True}]
        assert AuditEvent.objects.get(act="gpu_memory_written_off").actor_name == "olga"
        unknown = operator.post(path.replace(lease, str(uuid.uuid4())), {}, "application/json")
        assert (unknown.status_code, unknown.json()["code"]) == (409, "wrong_standing")

    def test_by_command_which_lists_it_first(self, worker: WireWorker) -> None:
        lease, out, line = ended(worker), io.StringIO(), io.StringIO()
        call_command("workers", stdout=line)
        assert "GPU memory of an ended app is not released: manage.py free_gpu gpu1" in line.getvalue()
        call_command("free_gpu", "gpu1", stdout=out)
        assert out.getvalue() == f"{lease}  {LEFT}\n"

        call_command("free_gpu", "gpu1", lease, stdout=out)

        assert "counts as use by others" in out.getvalue()
        told = io.StringIO()
        call_command("free_gpu", "gpu1", "--json", stdout=told)
        assert json.loads(told.getvalue()) == {"lease": lease, "reason": LEFT, "freed": True}
        with pytest.raises(CommandError, match="tells of no GPU memory"):
            call_command("free_gpu", "gpu1", str(uuid.uuid4()))

    def test_the_admin_asks_first_and_frees_what_was_ticked(self, worker: WireWorker, operator: Client) -> None:
        lease = ended(worker)
        form = {"action": "free_gpu", "_selected_action": worker.id}

        text = operator.post(LIST, form, follow=True).content.decode()

        assert lease in text and LEFT in text and "as use by others" in text and "checked" not in text
        assert not unreleased.freed(worker.row)

        ticked = form | {"confirmed": "yes", "lease": [f"{worker.id}/{lease}", "nonsense"], "reason": "looked"}
        text = operator.post(LIST, ticked, follow=True).content.decode()

        assert "What 1 ended app held on GPUs is freed." in text
        assert unreleased.freed(worker.row) == {lease}
        assert AuditEvent.objects.get(act="gpu_memory_written_off").reason == "looked"

    def test_the_place_is_free_in_the_figures_too(self, worker: WireWorker) -> None:
        lease = ended(worker)
        assert line_of(worker.row)[0].jobs == 1

        freed(worker, lease)

        assert line_of(worker.row)[0].jobs == 0
        assert name_of(Lease.objects.get(pk=lease).job) not in line_of(worker.row)[0].names
