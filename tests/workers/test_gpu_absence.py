"""GPUs that vanish, fail, recover, or are reported by two workers: nothing new on them, and nothing of them lost."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from jobs import offers
from jobs.models import AuditEvent, Job, Reservation
from jobs.scheduling import GpuOffer
from tests.factories import JobFactory, RequirementFactory, UserFactory
from tests.workers.conftest import GPU, WireWorker
from workers import gpus
from workers.models import GOOD_REPORTS, Gpu, Worker

pytestmark = pytest.mark.django_db

Enroll = Any
OTHER = GPU | {"uuid": "GPU-0b7c1c52-3f0e-4d8a-9a55-3b1f6c1f2d11", "index": 1}


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll(gpus=[GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


def gpu_job() -> Job:
    return JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=6_000))


def offer_of(worker: WireWorker, place: int = 0) -> GpuOffer:
    (offer,) = offers.offers_for([worker.row_id])
    return offer.gpus[place]


def holding(claimed: Any) -> list[dict[str, Any]]:
    return [{"lease": claimed["lease"], "state": "running"}]


class TestAGpuThatVanishes:
    def test_keeps_its_reservations_and_gets_nothing_new(self, worker: WireWorker) -> None:
        gpu_job()
        gpu_job()
        claimed = worker.claim().json()
        worker.gpus = []

        worker.heartbeat(holds=holding(claimed))

        assert (offer_of(worker).present, len(offer_of(worker).reserved)) == (False, 1)
        assert worker.claim().status_code == 204

    def test_is_used_again_when_it_is_back(self, worker: WireWorker) -> None:
        gpu_job()
        worker.heartbeat(gpus=[])

        worker.heartbeat()

        assert worker.claim().status_code == 200

    def test_does_not_take_the_others_with_it(self, worker: WireWorker) -> None:
        gpu_job()
        worker.heartbeat(gpus=[GPU, OTHER])

        worker.gpus = [OTHER]
        worker.heartbeat()

        assert worker.claim().json()["gpus"] == [OTHER["uuid"]]


class TestAGpuThatFails:
    def test_gets_nothing_new_and_keeps_what_it_has(self, worker: WireWorker) -> None:
        gpu_job()
        gpu_job()
        claimed = worker.claim().json()
        worker.gpus = [GPU | {"healthy": False, "error": "GPU is lost"}]

        worker.heartbeat(holds=holding(claimed))

        assert worker.claim().status_code == 204
        assert offer_of(worker).error == "GPU is lost"
        assert Reservation.objects.filter(cleared_at=None).count() == 1

    def test_is_used_again_after_good_reports_in_a_row(self, worker: WireWorker) -> None:
        gpu_job()
        worker.heartbeat(gpus=[GPU | {"healthy": False}])

        refused = []
        for _ in range(GOOD_REPORTS - 1):
            worker.heartbeat()
            refused.append(worker.claim().status_code)
        worker.heartbeat()

        assert refused == [204] * (GOOD_REPORTS - 1)
        assert worker.claim().status_code == 200

    def test_begins_anew_when_it_fails_again(self, worker: WireWorker) -> None:
        worker.heartbeat(gpus=[GPU | {"healthy": False}])
        worker.heartbeat()
        worker.heartbeat(gpus=[GPU | {"error": "Unknown Error"}])
        for _ in range(GOOD_REPORTS - 1):
            worker.heartbeat()

        assert offer_of(worker).good_reports_missing == 1

    def test_claims_are_no_probes_however_many_come(self, worker: WireWorker) -> None:
        worker.heartbeat(gpus=[GPU | {"healthy": False}])

        for _ in range(2 * GOOD_REPORTS):
            worker.claim()

        assert offer_of(worker).good_reports_missing == GOOD_REPORTS

    def test_is_used_again_at_once_when_an_operator_says_so(self, worker: WireWorker) -> None:
        gpu_job()
        worker.heartbeat(gpus=[GPU | {"healthy": False}])
        worker.heartbeat()
        operator = UserFactory.create(is_staff=True)

        assert gpus.trust(Gpu.objects.get().pk, actor=operator)

        assert worker.claim().status_code == 200
        assert AuditEvent.objects.get(act="gpu_trusted").after == {"gpu": GPU["uuid"]}

    def test_a_new_gpu_is_trusted_from_the_first_report(self, worker: WireWorker) -> None:
        worker.heartbeat(gpus=[GPU, OTHER])

        assert offer_of(worker, 1).good_reports_missing == 0

    def test_does_not_take_the_others_with_it(self, worker: WireWorker) -> None:
        gpu_job()
        worker.gpus = [GPU | {"healthy": False}, OTHER]
        worker.heartbeat()

        assert worker.claim().json()["gpus"] == [OTHER["uuid"]]


class TestAGpuThatTwoWorkersReport:
    @pytest.fixture
    def twin(self, enroll: Enroll, worker: WireWorker) -> WireWorker:
        found: WireWorker = enroll("gpu2", gpus=[GPU], gateway_url="http://127.0.0.1:18788")
        Worker.objects.update(gateway_status=Worker.Gateway.OK)
        return found

    def test_belongs_to_the_one_heard_last_and_is_flagged_at_both(self, worker: WireWorker, twin: WireWorker) -> None:
        assert (offer_of(worker).elsewhere, offer_of(twin).elsewhere) == ("gpu2", "")
        assert (offer_of(worker).also_at, offer_of(twin).also_at) == (("gpu2",), ("gpu1",))

        worker.heartbeat()

        assert (offer_of(worker).elsewhere, offer_of(twin).elsewhere) == ("", "gpu1")

    def test_is_given_away_once(self, worker: WireWorker, twin: WireWorker) -> None:
        JobFactory.create_batch(2, requirement=RequirementFactory.create(kind="gpu", gpu_count=1, exclusive=True))

        assert [each.claim().status_code for each in (worker, twin)] == [200, 204]

    def test_what_one_of_them_reserved_counts_at_the_other(self, worker: WireWorker, twin: WireWorker) -> None:
        gpu_job()
        worker.claim()

        assert [held.mib for held in offer_of(twin).reserved] == [6_000]


def test_the_children_of_a_mig_gpu_are_used_and_the_parent_is_not(worker: WireWorker) -> None:
    gpu_job()
    child = GPU | {"uuid": f"MIG-{uuid.UUID(int=7)}", "model": "MIG 2g.10gb", "total_vram_mib": 9_984}
    worker.gpus = [GPU | {"mig": True, "free_vram_mib": None}, child | {"free_vram_mib": 9_900}]
    worker.heartbeat()

    assert worker.claim().json()["gpus"] == [child["uuid"]]
