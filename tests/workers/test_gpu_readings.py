"""A driver in trouble tells nonsense: it is doubted with its figure, never worked with, and costs no heartbeat."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs import offers
from jobs.models import Job
from jobs.scheduling import GpuOffer
from tests.factories import JobFactory, RequirementFactory
from tests.workers.conftest import GPU, WireWorker
from workers.models import Gpu, Worker
from workers.readings import LARGEST_MIB, Doubt, believed
from workers.reports import IMPOSSIBLE, ForeignOnGpu, GpuReport, OursOnGpu

Enroll = Any
LEASE = uuid.uuid4()


def report(**facts: Any) -> GpuReport:
    told: dict[str, Any] = {"uuid": "GPU-a", "total_vram_mib": 24_564, "free_vram_mib": 24_000}
    return GpuReport(**(told | facts))


class TestWhatIsBelieved:
    def test_a_sound_report_is_taken_as_it_is(self) -> None:
        ours, foreign = [OursOnGpu(LEASE, 8_000)], [ForeignOnGpu(4711, "python", 2_000)]

        found = believed(report(free_vram_mib=14_564, ours=ours, foreign=foreign), largest=0)

        assert (found.total_mib, found.free_mib, found.ours, found.foreign) == (24_564, 14_564, ours, foreign)
        assert found.doubts == ()

    @pytest.mark.parametrize(
        ("told", "doubt"),
        [
            (None, Doubt("size_missing", None)),
            (0, Doubt("size_missing", 0)),
            (IMPOSSIBLE, Doubt("size_impossible", None)),
            (LARGEST_MIB + 1, Doubt("size_impossible", LARGEST_MIB + 1)),
            (24_000, Doubt("size_shrank", 24_000)),
        ],
    )
    def test_the_largest_size_ever_told_stands_for_one_that_cannot_be(self, told: int | None, doubt: Doubt) -> None:
        found = believed(report(total_vram_mib=told, free_vram_mib=None), largest=24_564)

        assert (found.total_mib, found.doubts) == (24_564, (doubt,))

    def test_a_size_beyond_belief_never_becomes_the_largest(self) -> None:
        assert believed(report(total_vram_mib=LARGEST_MIB + 1), largest=0).total_mib == 0

    @pytest.mark.parametrize("facts", [{"healthy": False}, {"error": "GPU is lost"}, {"mig": True}])
    def test_a_card_with_another_reason_for_telling_no_size_is_not_doubted(self, facts: dict[str, Any]) -> None:
        assert believed(report(total_vram_mib=None, free_vram_mib=None, **facts), largest=0).doubts == ()

    @pytest.mark.parametrize("told", [IMPOSSIBLE, 24_565, 2**31 - 1])
    def test_free_memory_that_cannot_be_is_not_known(self, told: int) -> None:
        found = believed(report(free_vram_mib=told), largest=0)

        assert found.free_mib is None
        assert found.doubts == (Doubt("free_impossible", None if told == IMPOSSIBLE else told),)

    def test_processes_that_use_more_than_there_is_are_not_measured(self) -> None:
        ours, foreign = [OursOnGpu(LEASE, 20_000)], [ForeignOnGpu(4711, "python", 4_565)]

        found = believed(report(ours=ours, foreign=foreign), largest=0)

        assert found.doubts == (Doubt("use_above_size", 24_565),)
        assert (found.ours, found.foreign) == ([OursOnGpu(LEASE, None)], [ForeignOnGpu(4711, "python", None)])

    def test_nor_is_one_that_uses_less_than_nothing(self) -> None:
        found = believed(report(foreign=[ForeignOnGpu(4711, "python", IMPOSSIBLE)]), largest=0)

        assert (found.doubts, found.foreign) == ((Doubt("use_impossible"),), [ForeignOnGpu(4711, "python", None)])

    @given(
        total=st.one_of(st.none(), st.integers(IMPOSSIBLE, 2**31 - 1)),
        free=st.one_of(st.none(), st.integers(IMPOSSIBLE, 2**31 - 1)),
        uses=st.lists(st.one_of(st.none(), st.integers(IMPOSSIBLE, 2**31 - 1)), max_size=4),
        largest=st.integers(0, LARGEST_MIB),
    )
    def test_whatever_is_told_what_is_used_can_be_true(
        self, total: int | None, free: int | None, uses: list[int | None], largest: int
    ) -> None:
        foreign = [ForeignOnGpu(n, "x", mib) for n, mib in enumerate(uses)]

        found = believed(report(total_vram_mib=total, free_vram_mib=free, foreign=foreign), largest=largest)

        assert largest <= found.total_mib <= LARGEST_MIB
        assert found.free_mib is None or found.free_mib >= 0
        known = [use.mib for use in found.foreign if use.mib is not None]
        assert all(mib >= 0 for mib in known)
        if found.total_mib:
            assert (found.free_mib or 0) <= found.total_mib
            assert sum(known) <= found.total_mib


# --- over the wire -------------------------------------------------------------------------------------------------


def gpu_job(**needs: Any) -> Job:
    return JobFactory.create(requirement=RequirementFactory.create(kind="gpu", **({"gpu_count": 1} | needs)))


def offer_of(worker: WireWorker) -> GpuOffer:
    (offer,) = offers.offers_for([worker.row_id])
    return offer.gpus[0]


@pytest.fixture
def worker(enroll: Enroll) -> WireWorker:
    found: WireWorker = enroll(gpus=[GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


@pytest.mark.django_db
@pytest.mark.parametrize(
    "facts",
    [
        {"free_vram_mib": -5},
        {"free_vram_mib": 10**15},
        {"total_vram_mib": -1},
        {"total_vram_mib": 2**63},
        {"total_vram_mib": 0},
        {"total_vram_mib": None},
        {"foreign": [{"pid": 1, "name": "x", "mib": -3}]},
        {"foreign": [{"pid": 1, "name": "x", "mib": 10**20}]},
        {"foreign": [{"pid": 1, "name": "x", "mib": 90_000}]},
    ],
    ids=str,
)
def test_a_mad_figure_costs_neither_the_heartbeat_nor_the_card(worker: WireWorker, facts: dict[str, Any]) -> None:
    gpu_job(vram_mib=6_000)

    answer = worker.heartbeat(gpus=[GPU | facts])

    assert answer.status_code == 200
    assert Gpu.objects.get().doubts
    assert offer_of(worker).total_mib == 24_564
    worker.gpus = [GPU | facts]
    assert worker.claim().status_code == 200  # as a whole, where sharing needs a figure that nobody has


@pytest.mark.django_db
def test_a_card_with_impossible_readings_is_given_as_a_whole_only(worker: WireWorker) -> None:
    for _ in range(2):
        gpu_job(vram_mib=6_000)
    worker.gpus = [GPU | {"free_vram_mib": 30_000}]

    assert [worker.claim().status_code for _ in range(2)] == [200, 204]

    assert offer_of(worker).reserved[0].exclusive


@pytest.mark.django_db
def test_a_doubt_ends_with_the_next_sound_report(worker: WireWorker) -> None:
    worker.heartbeat(gpus=[GPU | {"free_vram_mib": 30_000}])
    assert Gpu.objects.get().doubts == [{"code": "free_impossible", "mib": 30_000}]

    worker.heartbeat()

    assert Gpu.objects.get().doubts == []
    assert offer_of(worker).free_mib == 24_100


@pytest.mark.django_db
def test_a_card_that_never_told_its_size_is_for_jobs_that_name_none(worker: WireWorker) -> None:
    gpu_job(vram_mib=1_000)
    whole = gpu_job(exclusive=True)
    other = GPU | {"uuid": "GPU-without-size", "total_vram_mib": None, "free_vram_mib": None}
    worker.gpus = [other]

    claimed = worker.claim().json()

    assert claimed["id"] == str(whole.pk)
    assert claimed["gpus"] == ["GPU-without-size"]
