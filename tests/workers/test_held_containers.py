"""A container of a lease that nobody here knows is kept until an operator names worker and lease, or for a day."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from jobs.models import AuditEvent
from tests.factories import JobFactory, UserFactory
from tests.workers.conftest import GPU, WireWorker
from workers import held, offers, standing
from workers.errors import WrongStanding
from workers.models import Worker

pytestmark = pytest.mark.django_db

Enroll = Any
STRAY = "e91b5c37-48fa-4c16-a2de-70b8d3f95a12"
OTHER = "0b7c1c52-3f0e-4d8a-9a55-3b1f6c1f2d11"
LIST = "/admin/workers/worker/"
HELD_GPU = GPU | {"free_vram_mib": 16_000, "ours": [{"lease": STRAY, "mib": 8_192}]}


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll("gpu1", local=True, gpus=[HELD_GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    wants(found, STRAY, OTHER)
    return found


@pytest.fixture
def operator() -> Client:
    client = Client()
    client.force_login(UserFactory.create(username="olga", is_staff=True))
    return client


def wants(worker: WireWorker, *listed: str) -> dict[str, str]:
    """What a heartbeat that lists these is told to do with each."""
    answer = worker.heartbeat(holds=[{"lease": lease, "state": "running"} for lease in listed])
    assert answer.status_code == 200, answer.content
    return {each["lease"]: each["want"] for each in answer.json()["leases"]}


def removed(worker: WireWorker, lease: str = STRAY, **more: Any) -> None:
    held.remove(worker.row_id, uuid.UUID(lease), actor=None, **more)


def page(client: Client) -> str:
    return client.get("/fleet/").content.decode()


class TestTheWord:
    def test_only_what_was_named_is_removed(self, worker: WireWorker) -> None:
        removed(worker)

        assert wants(worker, STRAY, OTHER) == {STRAY: "remove", OTHER: "hold"}

    def test_it_holds_until_the_container_is_gone(self, worker: WireWorker) -> None:
        removed(worker)
        assert [wants(worker, STRAY)[STRAY] for _ in range(2)] == ["remove", "remove"]
        assert worker.row.foreign_leases == [STRAY], "it is shown until it is gone"

        wants(worker)

        assert (worker.row.foreign_leases, worker.row.removals) == ([], None)
        assert wants(worker, STRAY) == {STRAY: "hold"}, "what turns up again needs a new word"

    def test_it_survives_a_restart_of_the_worker(self, worker: WireWorker) -> None:
        removed(worker)

        answer = worker.register(holds=[{"lease": STRAY, "state": "running"}])

        assert [each["want"] for each in answer["leases"]] == ["remove"]

    def test_it_says_nothing_of_the_same_lease_elsewhere(self, worker: WireWorker, enroll: Enroll) -> None:
        other = enroll("gpu2")
        removed(worker)

        assert wants(other, STRAY) == {STRAY: "hold"}

    def test_a_lease_that_is_known_is_never_removed_by_it(self, worker: WireWorker) -> None:
        """Somebody put the newer database back: the lease has a row, and that row decides."""
        JobFactory.create()
        claimed = worker.claim().json()
        Worker.objects.update(removals=[claimed["lease"]])

        assert wants(worker, claimed["lease"]) == {claimed["lease"]: "keep"}

    def test_nor_can_one_be_named_that_is_valid_elsewhere(self, worker: WireWorker, enroll: Enroll) -> None:
        JobFactory.create()
        other = enroll("gpu2", local=True, gateway_url="http://127.0.0.1:18788")
        Worker.objects.update(gateway_status=Worker.Gateway.OK)
        valid = other.claim().json()["lease"]
        wants(worker, valid)

        with pytest.raises(WrongStanding, match="another worker"):
            removed(worker, valid)

    def test_nor_is_one_that_the_worker_does_not_hold(self, worker: WireWorker) -> None:
        with pytest.raises(WrongStanding, match="on hold"):
            removed(worker, str(uuid.uuid4()))

    def test_a_revoked_worker_is_told_nothing(self, worker: WireWorker) -> None:
        standing.revoke(worker.row_id, actor=None)

        with pytest.raises(WrongStanding, match="revoked"):
            removed(worker)

    def test_an_engine_that_does_not_answer_changes_nothing(self, worker: WireWorker) -> None:
        removed(worker)

        worker.heartbeat(holds=None)

        assert (worker.row.foreign_leases, worker.row.removals) == ([STRAY, OTHER], [STRAY])

    def test_twice_is_once_and_audited_once(self, worker: WireWorker) -> None:
        for _ in range(2):
            removed(worker, reason="looked at it")

        (event,) = AuditEvent.objects.filter(act="held_container_removed")
        assert (event.object_name, event.reason, event.after) == ("gpu1", "looked at it", {"lease": STRAY})


class TestWhereItIsSaid:
    def test_the_fleet_page_names_lease_and_memory_to_operators(self, worker: WireWorker, operator: Client) -> None:
        assert f"Lease {STRAY}, uses 8.0 GB: kept until somebody removes it, or a day." in page(operator)
        removed(worker)
        assert f"Lease {STRAY}, uses 8.0 GB: is being removed." in page(operator)

        visitor = Client()
        visitor.force_login(UserFactory.create())
        assert STRAY not in page(visitor)

    def test_by_api(self, worker: WireWorker, operator: Client) -> None:
        answer = operator.post(f"/api/v1/fleet/workers/gpu1/held/{STRAY}/remove", {"reason": "x"}, "application/json")

        assert answer.status_code == 200, answer.content
        assert answer.json()["held"] == [
            {"lease": STRAY, "gpu_mib": 8_192, "removal_asked": True},
            {"lease": OTHER, "gpu_mib": None, "removal_asked": False},
        ]
        assert AuditEvent.objects.get(act="held_container_removed").actor_name == "olga"
        unknown = operator.post(f"/api/v1/fleet/workers/gpu1/held/{uuid.uuid4()}/remove", {}, "application/json")
        assert (unknown.status_code, unknown.json()["code"]) == (409, "wrong_standing")

    def test_by_api_for_nobody_else(self, worker: WireWorker) -> None:
        client = Client()
        client.force_login(UserFactory.create())

        for caller in (client, Client(headers={"Authorization": f"Bearer {worker.credential}"})):
            answer = caller.post(f"/api/v1/fleet/workers/gpu1/held/{STRAY}/remove")
            assert answer.status_code in (401, 403)
        assert worker.row.removals is None

    def test_by_command_which_lists_them_first(self, worker: WireWorker) -> None:
        out = io.StringIO()
        call_command("remove_held", "gpu1", stdout=out)
        assert out.getvalue().splitlines() == [f"{STRAY}  8192 MiB of GPU memory", OTHER]

        call_command("remove_held", "gpu1", STRAY, stdout=out)

        assert worker.row.removals == [STRAY]
        with pytest.raises(CommandError, match="on hold"):
            call_command("remove_held", "gpu1", str(uuid.uuid4()))


class TestInTheAdmin:
    def act(self, client: Client, worker: WireWorker, **more: Any) -> str:
        form = {"action": "remove_held", "_selected_action": worker.id, **more}
        return client.post(LIST, form, follow=True).content.decode()

    def test_it_asks_first_and_lists_what_is_on_hold(self, worker: WireWorker, operator: Client) -> None:
        text = self.act(operator, worker)

        assert STRAY in text and OTHER in text and "checked" not in text
        assert worker.row.removals is None

    def test_what_was_ticked_is_removed(self, worker: WireWorker, operator: Client) -> None:
        ticked = [f"{worker.id}/{OTHER}", "nonsense", f"{worker.id}/{uuid.uuid4()}"]

        text = self.act(operator, worker, confirmed="yes", lease=ticked, reason="looked")

        assert "1 container is removed" in text and "on hold" in text
        assert worker.row.removals == [OTHER]
        (event,) = AuditEvent.objects.filter(act="held_container_removed")
        assert (event.actor_name, event.reason, event.address) == ("olga", "looked", "127.0.0.1")

    def test_nothing_ticked_is_nothing_done(self, worker: WireWorker, operator: Client) -> None:
        self.act(operator, worker, confirmed="yes")

        assert worker.row.removals is None
        assert not AuditEvent.objects.filter(act="held_container_removed").exists()


class TestTheGpusOfOne:
    """A container on hold may use the GPUs it was given at any moment, so they are as good as taken."""

    GIVEN = {"lease": STRAY, "state": "running", "kind": "gpu", "gpus": [str(GPU["uuid"])]}

    def test_they_are_kept_as_the_worker_says_them_and_forgotten_with_it(self, worker: WireWorker) -> None:
        worker.heartbeat(holds=[self.GIVEN])
        assert worker.row.hold_facts == {STRAY: {"kind": "gpu", "gpus": [GPU["uuid"]]}}

        worker.heartbeat(holds=None)
        assert worker.row.hold_facts, "an engine that does not answer says nothing"

        worker.heartbeat(holds=[])
        assert worker.row.hold_facts == {}

    def test_they_take_a_gpu_place_although_nothing_runs_on_them(self, worker: WireWorker) -> None:
        worker.gpus = [GPU]
        worker.heartbeat(holds=[self.GIVEN])

        (offer,) = offers.offers_for([worker.row_id])

        assert (offer.free_gpu_slots, offer.free_cpu_slots) == (1, 4)
        assert [gpu.on_hold for gpu in offer.gpus] == [True]

    def test_an_older_worker_that_does_not_say_is_counted_by_what_is_seen(self, worker: WireWorker) -> None:
        worker.heartbeat(holds=[{"lease": STRAY, "state": "running"}])

        (offer,) = offers.offers_for([worker.row_id])

        assert (offer.free_gpu_slots, [gpu.on_hold for gpu in offer.gpus]) == (1, [False])

    def test_an_operator_reads_why_the_gpu_is_not_given(self, worker: WireWorker, operator: Client) -> None:
        worker.heartbeat(holds=[self.GIVEN])

        assert "Given to a container on hold, of a lease that nobody here knows." in page(operator)


class TestMemoryThatIsNotReleased:
    """A lease of ours that is over stays reserved as long as its worker lists it; the worker says why."""

    LEFT = "GPU 0 has not released 5120 MiB of alice/app, which has ended: held by process 4711 of its container."

    def test_an_operator_reads_it_until_the_memory_is_back(self, worker: WireWorker, operator: Client) -> None:
        over = {"lease": OTHER, "state": "exited", "kind": "gpu", "gpus": [str(GPU["uuid"])], "reason": self.LEFT}
        worker.heartbeat(holds=[over])

        assert self.LEFT in page(operator)
        (told,) = operator.get("/api/v1/fleet/workers").json()["workers"]
        assert told["not_released"] == [{"lease": OTHER, "reason": self.LEFT, "freed": False}]

        worker.heartbeat(holds=[])
        assert self.LEFT not in page(operator)
