"""Reservations are rows: written with the claim, counted until nothing is left, and never more than a card has."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import IntegrityError, transaction
from django.db.models import Sum

from jobs import offers
from jobs.lifecycle import Claim, Hold, sync_holds
from jobs.models import Job, Lease, Reservation
from jobs.scheduling import Refusal, RequirementSpec, could_if_empty, fits
from jobs.states import JobState
from tests.factories import GpuFactory, GpuWorkerFactory, JobFactory, RequirementFactory, ago
from tests.jobs.conftest import claim, must_claim
from workers.models import Gpu, Worker

pytestmark = pytest.mark.django_db

MARGIN = 512
GB13, GB6 = 12_397, 5_722


def gpu_job(vram_mib: int | None = None, *, count: int = 1) -> Job:
    needs = RequirementFactory.create(kind="gpu", gpu_count=count, vram_mib=vram_mib, exclusive=vram_mib is None)
    return JobFactory.create(requirement=needs)


def reserved() -> list[tuple[str, int, bool]]:
    rows = Reservation.objects.filter(cleared_at=None).order_by("id")
    return list(rows.values_list("gpu__uuid", "mib", "exclusive"))


def measured(gpu: Gpu, **leases: tuple[Lease, int | None]) -> None:
    gpu.ours = [{"lease": str(lease.pk), "mib": mib} for lease, mib in leases.values()]
    gpu.free_vram_mib = gpu.total_vram_mib - sum(mib or 0 for _, mib in leases.values())
    gpu.save()


def test_a_job_with_a_size_reserves_that_much() -> None:
    gpu_job(GB6)
    worker = GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a"}])

    claimed = must_claim(worker)

    assert claimed.gpu_uuids == ("GPU-a",)
    assert reserved() == [("GPU-a", GB6, False)]


def test_a_job_without_one_reserves_the_whole_card() -> None:
    gpu_job()

    must_claim(GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a"}]))

    assert reserved() == [("GPU-a", 24_564, True)]


def test_several_jobs_share_a_card_until_it_is_full() -> None:
    for _ in range(5):
        gpu_job(GB6)
    worker = GpuWorkerFactory.create(max_gpu_jobs=10, gpus=[{"uuid": "GPU-a", "free_vram_mib": 24_564}])

    taken = [claim(worker, f"k{n}") is not None for n in range(5)]

    assert taken == [True, True, True, True, False]  # four times 5,722 and the margin are 23,400 of 24,564


def test_jobs_of_two_gpus_reserve_on_both() -> None:
    gpu_job(GB6, count=2)
    worker = GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a"}, {"uuid": "GPU-b"}])

    assert must_claim(worker).gpu_uuids == ("GPU-a", "GPU-b")
    assert reserved() == [("GPU-a", GB6, False), ("GPU-b", GB6, False)]


def test_a_repeated_claim_reserves_nothing_more() -> None:
    gpu_job(GB6)
    worker = GpuWorkerFactory.create()

    first, again = must_claim(worker, "same"), must_claim(worker, "same")

    assert again.gpu_uuids == first.gpu_uuids
    assert len(reserved()) == 1


def test_what_others_use_meanwhile_is_not_promised() -> None:
    gpu_job(GB6)
    gpu_job(GB13)
    worker = GpuWorkerFactory.create(gpus=[{"free_vram_mib": 24_564}])
    must_claim(worker, "k1")
    Gpu.objects.update(free_vram_mib=18_000, foreign=[{"pid": 4711, "name": "python", "mib": 6_564}])

    assert claim(worker, "k2") is None
    Gpu.objects.update(free_vram_mib=GB6 + GB13 + MARGIN, foreign=[])
    assert claim(worker, "k2") is not None


def test_an_app_that_has_loaded_its_model_is_not_counted_twice() -> None:
    gpu_job(GB13)
    gpu_job(GB6)
    worker = GpuWorkerFactory.create()
    lease = must_claim(worker, "k1").lease
    measured(Gpu.objects.get(), first=(lease, GB13 - 100))

    assert claim(worker, "k2") is not None


def test_an_app_that_uses_more_than_it_reserved_leaves_less_for_others() -> None:
    gpu_job(GB13)
    gpu_job(GB6)
    worker = GpuWorkerFactory.create()
    lease = must_claim(worker, "k1").lease
    measured(Gpu.objects.get(), first=(lease, 20_000))

    assert claim(worker, "k2") is None


def test_where_use_cannot_be_measured_a_card_goes_to_one_job_as_a_whole() -> None:
    gpu_job(GB6)
    gpu_job(GB6)
    worker = GpuWorkerFactory.create(features=["cpu", "nvidia", "cuda", "wsl2"], gpus=[{"uuid": "GPU-a"}])

    must_claim(worker, "k1")

    assert reserved() == [("GPU-a", 24_564, True)]
    assert claim(worker, "k2") is None


@pytest.mark.parametrize(
    "facts",
    [
        {"ours": [{"lease": str(uuid.uuid4()), "mib": None}]},
        {"foreign": [{"pid": 1, "name": "Xorg", "mib": None}]},
    ],
    ids=["of ours", "of others"],
)
def test_one_process_of_unknown_use_makes_a_card_whole_only(facts: dict[str, Any]) -> None:
    gpu_job(GB6)

    must_claim(GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a"} | facts]))

    assert reserved() == [("GPU-a", 24_564, True)]


def test_a_container_on_hold_counts_as_foreign_use() -> None:
    gpu_job()
    stray = {"lease": str(uuid.uuid4()), "mib": 9_000}  # of a lease that this database does not know
    worker = GpuWorkerFactory.create(gpus=[{"ours": [stray], "free_vram_mib": 24_564 - 9_000}])

    assert claim(worker) is None
    (offer,) = offers.offers_for([worker.pk])
    assert offer.gpus[0].foreign == ((0, "a container on hold", 9_000),)


def test_containers_on_hold_take_places_as_their_worker_counts_them() -> None:
    on_a_card, elsewhere = str(uuid.uuid4()), str(uuid.uuid4())
    worker = GpuWorkerFactory.create(
        max_gpu_jobs=3,
        max_cpu_jobs=2,
        foreign_leases=[on_a_card, elsewhere],
        gpus=[{"ours": [{"lease": on_a_card, "mib": 9_000}]}, {"uuid": "GPU-b"}],
    )

    (offer,) = offers.offers_for([worker.pk])

    assert (offer.free_gpu_slots, offer.free_cpu_slots) == (2, 1)


def test_a_container_on_hold_that_was_given_a_gpu_takes_a_gpu_place_without_a_process_on_it() -> None:
    lease, silent = str(uuid.uuid4()), str(uuid.uuid4())
    worker = GpuWorkerFactory.create(
        max_gpu_jobs=3,
        max_cpu_jobs=2,
        foreign_leases=[lease, silent],
        hold_facts={lease: {"kind": "gpu", "gpus": ["GPU-a"]}},
        gpus=[{"uuid": "GPU-a"}, {"uuid": "GPU-b"}],
    )

    (offer,) = offers.offers_for([worker.pk])

    assert (offer.free_gpu_slots, offer.free_cpu_slots) == (2, 1), "of the silent one only what is seen counts"


@pytest.mark.parametrize("need", [None, GB6], ids=["a whole card", "a share"])
def test_a_card_that_a_container_on_hold_was_given_is_not_given_again(need: int | None) -> None:
    gpu_job(need)
    lease = str(uuid.uuid4())
    worker = GpuWorkerFactory.create(
        foreign_leases=[lease],
        hold_facts={lease: {"kind": "gpu", "gpus": ["GPU-a"]}},
        gpus=[{"uuid": "GPU-a", "free_vram_mib": 24_564}],
    )

    assert claim(worker) is None
    (offer,) = offers.offers_for([worker.pk])
    spec = RequirementSpec("gpu", gpu_count=1, vram_mib=need, exclusive=need is None)
    refusal = fits(offer, spec, mode="service")
    assert isinstance(refusal, Refusal)
    assert [each.code for each in refusal.per_gpu] == ["gpu_on_hold"]
    assert "is on hold" in refusal.sentence
    assert not could_if_empty(offer, spec, mode="service"), "nothing is kept free for who waits for it"

    Worker.objects.update(foreign_leases=[], hold_facts={})
    assert claim(worker) is not None


def test_a_card_on_hold_at_one_worker_is_not_given_by_another_that_reports_it() -> None:
    gpu_job(GB6)
    lease = str(uuid.uuid4())
    GpuWorkerFactory.create(
        foreign_leases=[lease],
        hold_facts={lease: {"kind": "gpu", "gpus": ["GPU-a"]}},
        gpus=[{"uuid": "GPU-a", "free_vram_mib": 24_564, "reported_at": ago(2)}],
    )
    twin = GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a", "free_vram_mib": 24_564}])

    assert claim(twin) is None


def test_memory_that_a_crash_left_behind_keeps_a_card_from_being_given_as_a_whole() -> None:
    gpu_job()

    assert claim(GpuWorkerFactory.create(gpus=[{"free_vram_mib": 20_000}])) is None


def test_a_lost_attempt_keeps_its_share_until_the_worker_says_that_nothing_is_left() -> None:
    gpu_job(GB13)
    gpu_job(GB13)
    worker = GpuWorkerFactory.create()
    lease = must_claim(worker, "k1").lease
    Lease.objects.filter(pk=lease.pk).update(released_at=ago(0))

    with transaction.atomic():
        sync_holds(worker.pk, holds=[Hold(lease.pk, "running")])
    assert claim(worker, "k2") is None  # its container still runs there
    with transaction.atomic():
        sync_holds(worker.pk, holds=None)
    assert claim(worker, "k3") is None  # the engine did not answer: nobody knows

    with transaction.atomic():
        sync_holds(worker.pk, holds=[])
    assert claim(worker, "k4") is not None


def test_a_card_that_vanished_keeps_what_is_reserved_and_gets_nothing_new() -> None:
    gpu_job(GB6)
    gpu_job(GB6)
    worker = GpuWorkerFactory.create()
    must_claim(worker, "k1")
    Gpu.objects.update(present=False)

    assert claim(worker, "k2") is None
    assert len(reserved()) == 1


def test_a_full_worker_could_take_more_if_it_were_empty() -> None:
    gpu_job()
    worker = GpuWorkerFactory.create(max_gpu_jobs=1)
    must_claim(worker)
    spec = RequirementSpec("gpu", gpu_count=1, exclusive=True)

    (offer,) = offers.offers_for([worker.pk])

    assert isinstance(fits(offer, spec, mode="service"), Refusal)
    assert could_if_empty(offer, spec, mode="service")


def test_an_operators_margin_is_kept_free(settings: Any) -> None:
    settings.OPENFACE_VRAM_MARGIN_MIB = 4_000
    gpu_job(20_600)
    worker = GpuWorkerFactory.create(gpus=[{"uuid": "GPU-a", "free_vram_mib": 24_564}])

    must_claim(worker)

    assert reserved() == [("GPU-a", 24_564, True)]  # more than 24,564 - 4,000 cannot be shared out


def test_a_share_of_nothing_is_refused_by_the_database() -> None:
    gpu_job(GB6)
    lease = must_claim(GpuWorkerFactory.create()).lease

    with pytest.raises(IntegrityError), transaction.atomic():
        Reservation.objects.create(lease=lease, gpu=GpuFactory.create(), mib=0)


@pytest.mark.django_db(transaction=True)
def test_two_claims_of_13_gb_at_once_do_not_both_get_a_card_of_24(at_once: Callable[..., list[Any]]) -> None:
    for _ in range(8):
        gpu_job(GB13)
    worker = GpuWorkerFactory.create(max_gpu_jobs=8, gpus=[{"free_vram_mib": 24_564}])

    taken = at_once([lambda n=n: claim(worker, f"k{n}") for n in range(8)])

    assert sum(isinstance(each, Claim) for each in taken) == 1
    assert sum(each is None for each in taken) == 7
    assert Job.objects.filter(state=JobState.QUEUED).count() == 7


@pytest.mark.django_db(transaction=True)
def test_claims_at_once_of_jobs_of_many_sizes_never_promise_more_than_there_is(
    at_once: Callable[..., list[Any]],
) -> None:
    for vram in (GB13, GB6, 3_000, None, 9_000, GB6, 2_000, 22_500, GB6, 1_000, None, 7_000):
        gpu_job(vram)
    worker = GpuWorkerFactory.create(max_gpu_jobs=20, gpus=[{"uuid": "GPU-a"}, {"uuid": "GPU-b"}])

    answers = at_once([lambda n=n: claim(worker, f"k{n}") for n in range(12)])

    assert not [each for each in answers if isinstance(each, Exception)]
    sums = Reservation.objects.filter(cleared_at=None).values("gpu", "exclusive").annotate(mib=Sum("mib"))
    cards = [row["gpu"] for row in sums]
    assert len(cards) == len(set(cards))  # shared or whole, never both
    for row in sums:
        assert row["mib"] <= (24_564 if row["exclusive"] else 24_564 - MARGIN)


@pytest.mark.django_db(transaction=True)
def test_two_workers_that_report_one_card_do_not_both_give_it_away(at_once: Callable[..., list[Any]]) -> None:
    for _ in range(6):
        gpu_job(GB13)
    workers = [GpuWorkerFactory.create(gpus=[]) for _ in range(2)]
    for worker in workers:
        GpuFactory.create(worker=worker, uuid="GPU-one", free_vram_mib=24_564)

    def heard_and_claims(worker: Worker, n: int) -> Claim | None:
        with transaction.atomic():
            Worker.objects.select_for_update(no_key=True).get(pk=worker.pk)
            Gpu.objects.filter(worker=worker).update(reported_at=ago(0))
            return claim(worker, f"{worker.name}-{n}")

    answers = at_once([lambda n=n: heard_and_claims(workers[n % 2], n) for n in range(12)])

    assert not [each for each in answers if isinstance(each, Exception)]
    assert [mib for _, mib, _ in reserved()] == [GB13]
