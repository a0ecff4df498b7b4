"""Which GPUs of a worker a job gets, and in which words it is refused. Pure: no database."""

from __future__ import annotations

import dataclasses
import uuid
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobs.scheduling import (
    GpuOffer,
    Held,
    Placement,
    Refusal,
    RequirementSpec,
    Share,
    WorkerOffer,
    could_if_empty,
    fits,
)
from spaces import words

GB12, GB20, GB6 = 11_444, 19_073, 5_722  # what vram-12gb, vram-20gb and vram-6gb ask for


def gpu(index: int = 0, total: int = 24_564, *, free: int | None = None, **facts: Any) -> GpuOffer:
    return GpuOffer(
        gpu_id=index,
        uuid=f"GPU-{index}",
        index=index,
        model="RTX 4090",
        total_mib=total,
        free_mib=total if free is None else free,
        **facts,
    )


def held(mib: int, *, exclusive: bool = False, used: int | None = 0, name: str = "alice/app") -> Held:
    return Held(uuid.uuid4(), mib, exclusive, used_mib=used, name=name)


def worker(*gpus: GpuOffer, **facts: Any) -> WorkerOffer:
    values: dict[str, Any] = {"free_gpu_slots": 4, "gpu_slots": 4, "features": frozenset({"nvidia", "cuda"})}
    return WorkerOffer(worker_id=uuid.uuid4(), name="gpu1", gpus=gpus or (gpu(),), **(values | facts))


def need(vram_mib: int | None = None, *, count: int = 1, exclusive: bool = False) -> RequirementSpec:
    return RequirementSpec("gpu", gpu_count=count, vram_mib=vram_mib, exclusive=exclusive or vram_mib is None)


def place(offer: WorkerOffer, spec: RequirementSpec) -> list[tuple[str, int, bool]]:
    answer = fits(offer, spec, mode="service")
    assert isinstance(answer, Placement), answer
    return [(share.gpu.uuid, share.mib, share.exclusive) for share in answer.shares]


def refuse(offer: WorkerOffer, spec: RequirementSpec) -> Refusal:
    answer = fits(offer, spec, mode="service")
    assert isinstance(answer, Refusal), answer
    return answer


class TestPlacement:
    def test_a_job_with_a_size_gets_that_much_and_no_more(self) -> None:
        assert place(worker(), need(GB6)) == [("GPU-0", GB6, False)]

    def test_one_without_gets_the_whole_card(self) -> None:
        assert place(worker(), need()) == [("GPU-0", 24_564, True)]

    def test_a_job_that_nearly_fills_a_card_gets_all_of_it(self) -> None:
        assert place(worker(gpu(total=12_287)), need(GB12)) == [("GPU-0", 12_287, True)]

    def test_several_jobs_share_a_card(self) -> None:
        shared = worker(gpu(reserved=(held(GB6), held(GB6))))

        assert place(shared, need(GB6)) == [("GPU-0", GB6, False)]

    def test_two_gpus_are_two_cards_each_with_that_much(self) -> None:
        assert place(worker(gpu(0), gpu(1)), need(GB6, count=2)) == [("GPU-0", GB6, False), ("GPU-1", GB6, False)]

    def test_two_gpus_are_never_two_parts_of_one(self) -> None:
        assert refuse(worker(gpu(0)), need(GB6, count=2)).code == "too_few_gpus"

    def test_one_of_them_may_be_whole_and_the_other_a_part(self) -> None:
        assert place(worker(gpu(0), gpu(1, total=12_287)), need(GB12, count=2)) == [
            ("GPU-1", 12_287, True),
            ("GPU-0", GB12, False),
        ]

    def test_a_placement_names_its_gpus(self) -> None:
        answer = fits(worker(), need(GB6), mode="service")

        assert isinstance(answer, Placement)
        assert answer.gpus == (gpu(),)
        assert answer.shares == (Share(gpu(), GB6, exclusive=False),)


class TestBestFit:
    def test_the_card_on_which_least_is_left_is_taken(self) -> None:
        offer = worker(gpu(0), gpu(1, reserved=(held(GB12),)))

        assert place(offer, need(GB6)) == [("GPU-1", GB6, False)]

    def test_a_small_card_before_a_gap_in_a_large_one(self) -> None:
        offer = worker(gpu(0), gpu(1, total=12_287))

        assert place(offer, need(GB12)) == [("GPU-1", 12_287, True)]

    def test_a_whole_card_is_the_smallest_that_does(self) -> None:
        offer = worker(gpu(0), gpu(1, total=8_188), gpu(2, total=12_287))

        assert place(offer, need()) == [("GPU-1", 8_188, True)]
        assert place(offer, need(9_000, exclusive=True)) == [("GPU-2", 12_287, True)]

    def test_what_others_use_counts_as_taken(self) -> None:
        offer = worker(gpu(0), gpu(1, free=10_000, foreign_mib=14_564, foreign=((1, "x", 14_564),)))

        assert place(offer, need(GB6)) == [("GPU-1", GB6, False)]

    def test_between_equals_the_first_is_taken(self) -> None:
        assert place(worker(gpu(1), gpu(0)), need(GB6)) == [("GPU-0", GB6, False)]


class TestRefusals:
    """Sentences that an operator can act on: the worker, the card, and the figures."""

    @pytest.mark.parametrize(
        ("card", "spec", "code", "sentence"),
        [
            (
                gpu(free=3_072, foreign_mib=21_492, foreign=((4711, "python", 21_492),)),
                need(GB20),
                "gpu_foreign_use",
                "gpu1 / RTX 4090: 3.0 of 24.0 GB free, 21.0 GB used by processes that are not ours: python (pid 4711)",
            ),
            (
                gpu(free=3_072, foreign_mib=21_492, foreign=((4711, "python", 21_492),)),
                need(),
                "gpu_foreign_use",
                "gpu1 / RTX 4090: 3.0 of 24.0 GB free, 21.0 GB used by processes that are not ours: python (pid 4711)",
            ),
            (
                gpu(reserved=(held(GB12), held(GB6, name="bob/lab"))),
                need(GB12),
                "gpu_vram_reserved",
                "gpu1 / RTX 4090: 6.7 of 24.0 GB available, 12 GB needed; 16.8 GB reserved for alice/app, bob/lab",
            ),
            (
                gpu(reserved=(held(24_564, exclusive=True),)),
                need(GB6),
                "gpu_reserved",
                "gpu1 / RTX 4090: reserved for alice/app",
            ),
            (gpu(reserved=(held(GB6),)), need(), "gpu_reserved", "gpu1 / RTX 4090: reserved for alice/app"),
            (
                gpu(reserved=(held(24_564, exclusive=True, used=None),), measurable=False),
                need(GB6),
                "gpu_unmeasured",
                "gpu1 / RTX 4090: it is given as a whole, for what each job uses cannot be measured there: "
                "reserved for alice/app",
            ),
            (gpu(total=8_188), need(GB12), "gpu_too_small", "gpu1 / RTX 4090: it has 8.0 GB, 12 GB are needed"),
            (
                gpu(total=0),
                need(GB12),
                "gpu_size_unknown",
                "gpu1 / RTX 4090: its driver does not tell how much memory it has, 12 GB are needed",
            ),
            (gpu(mig=True), need(), "gpu_mig", "gpu1 / RTX 4090: it is split into MIG instances"),
            (gpu(present=False), need(), "gpu_gone", "gpu1 / RTX 4090: the driver does not list it any more"),
            (
                gpu(healthy=False, error="GPU is lost"),
                need(),
                "gpu_unhealthy",
                "gpu1 / RTX 4090: GPU is lost",
            ),
            (
                gpu(good_reports_missing=2),
                need(),
                "gpu_recovering",
                "gpu1 / RTX 4090: it failed a moment ago, and is used again after 2 more good reports",
            ),
            (gpu(elsewhere="gpu2"), need(), "gpu_elsewhere", "gpu1 / RTX 4090: gpu2 has reported the same GPU since"),
            (
                gpu(simulated=True),
                need(),
                "gpu_simulated",
                "gpu1 / RTX 4090: it is simulated, and this server takes real ones only",
            ),
        ],
    )
    def test_a_card_says_why_not(self, card: GpuOffer, spec: RequirementSpec, code: str, sentence: str) -> None:
        refusal = refuse(worker(card), spec)

        assert [(each.code, each.sentence) for each in refusal.per_gpu] == [(code, sentence)]
        assert code in words.GPU_REFUSALS, "it has no words on the pages"

    def test_what_never_changes_is_said_to_be_so(self) -> None:
        assert refuse(worker(gpu(total=8_188), gpu(1, mig=True)), need(GB12)).never
        assert not refuse(worker(gpu(total=8_188), gpu(1, reserved=(held(GB12, exclusive=True),))), need(GB12)).never

    @pytest.mark.parametrize(
        "standing",
        [{"online": False}, {"scheduling": "draining"}, {"accepting": False}, {"gateway_ok": False}],
        ids=["offline", "draining", "paused", "no gateway"],
    )
    def test_a_job_that_can_never_run_there_is_told_so_whatever_the_standing(self, standing: dict[str, Any]) -> None:
        small = refuse(worker(gpu(total=8_188), **standing), need(GB12))
        few = refuse(worker(gpu(), **standing), need(GB6, count=2))
        mig = refuse(worker(gpu(mig=True), **standing), need())

        assert [(each.code, each.never) for each in (small, few, mig)] == [("too_few_gpus", True)] * 3
        assert [each.code for each in (*small.per_gpu, *mig.per_gpu)] == ["gpu_too_small", "gpu_mig"]

    @pytest.mark.parametrize(
        "card",
        [gpu(present=False), gpu(healthy=False), gpu(elsewhere="gpu2"), gpu(total=0), gpu(total=0, present=False)],
        ids=["vanished", "broken", "elsewhere", "size unknown", "vanished and unknown"],
    )
    def test_a_card_that_may_yet_do_is_no_reason_to_give_up(self, card: GpuOffer) -> None:
        away = refuse(worker(card, online=False), need(GB12))
        here = refuse(worker(card), need(GB12))

        assert (away.code, away.never, here.code, here.never) == ("worker_offline", False, "gpus_busy", False)

    def test_a_worker_that_takes_no_jobs_of_a_kind_never_will(self) -> None:
        no_gpu_jobs = worker(gpu_slots=0, free_gpu_slots=0, online=False, offline_since=datetime.now(UTC))
        no_cpu_jobs = worker(local=True)

        gpu_job = refuse(no_gpu_jobs, need(GB6))
        cpu_job = refuse(no_cpu_jobs, RequirementSpec("cpu"))

        assert (gpu_job.code, gpu_job.sentence, gpu_job.never) == ("no_gpu_jobs", "gpu1 takes no GPU jobs.", True)
        assert (cpu_job.code, cpu_job.sentence, cpu_job.never) == ("no_cpu_jobs", "gpu1 takes no CPU jobs.", True)

    def test_what_a_worker_takes_is_not_known_before_its_first_report(self) -> None:
        assert refuse(worker(local=True, online=False), RequirementSpec("cpu")).code == "worker_offline"

    def test_each_card_has_its_own_reason(self) -> None:
        refusal = refuse(worker(gpu(0, total=8_188), gpu(1, present=False), gpu(2, healthy=False)), need(GB12))

        assert [each.code for each in refusal.per_gpu] == ["gpu_too_small", "gpu_gone", "gpu_unhealthy"]

    def test_a_full_worker_is_full_whatever_its_cards_have_left(self) -> None:
        assert refuse(worker(gpu(), free_gpu_slots=0), need(GB6)).code == "worker_full"

    def test_the_children_of_a_mig_parent_are_cards_of_their_own(self) -> None:
        child = dataclasses.replace(gpu(1, total=9_984), uuid="MIG-6f1d8d44-0f5c-5b1f-9c55-8c5b2a5a7d01")

        assert place(worker(gpu(0, mig=True), child), need(GB6)) == [(child.uuid, GB6, False)]


class TestIfEmpty:
    """`could_if_empty`: what is ours is thought away, all else stays."""

    def test_what_fits_now_fits_an_empty_worker(self) -> None:
        assert could_if_empty(worker(), need(GB6), mode="service")

    def test_reservations_and_slots_of_ours_are_thought_away(self) -> None:
        full = worker(
            gpu(0, reserved=(held(24_564, exclusive=True),)), gpu(1, reserved=(held(GB12),)), free_gpu_slots=0
        )

        assert could_if_empty(full, need(count=2), mode="service")

    def test_so_is_the_memory_that_they_use(self) -> None:
        full = worker(gpu(free=2_000, reserved=(held(22_500, exclusive=True, used=22_000),)))

        assert could_if_empty(full, need(), mode="service")

    def test_and_what_they_may_use_where_nobody_can_measure_it(self) -> None:
        full = worker(gpu(free=2_000, reserved=(held(24_564, exclusive=True, used=None),), measurable=False))

        assert could_if_empty(full, need(GB12), mode="service")

    @pytest.mark.parametrize(
        "offer",
        [
            worker(gpu(free=3_000, foreign_mib=21_564, reserved=(held(100),))),
            worker(gpu(present=False)),
            worker(gpu(healthy=False)),
            worker(gpu(total=8_188)),
            worker(online=False),
            worker(scheduling="draining"),
            worker(gateway_ok=False),
            worker(features=frozenset(), free_gpu_slots=0, gpu_slots=0),
        ],
        ids=["used by others", "gone", "broken", "small", "offline", "draining", "no gateway", "takes no GPU jobs"],
    )
    def test_the_rest_stays(self, offer: WorkerOffer) -> None:
        assert not could_if_empty(offer, need(GB12), mode="service")

    def test_a_cpu_job_needs_a_slot_that_there_is(self) -> None:
        full = worker(local=True, free_cpu_slots=0, cpu_slots=2)

        assert could_if_empty(full, RequirementSpec("cpu"), mode="service")
        assert not could_if_empty(dataclasses.replace(full, cpu_slots=0), RequirementSpec("cpu"), mode="service")


sizes = st.sampled_from([8_188, 12_287, 16_376, 24_563, 24_564, 49_140, 81_559])
needs = st.builds(
    lambda vram, count, whole: RequirementSpec("gpu", gpu_count=count, vram_mib=vram, exclusive=whole),
    st.one_of(st.none(), st.integers(1, 85_000)),
    st.integers(1, 3),
    st.booleans(),
)


@given(totals=st.lists(sizes, min_size=1, max_size=4), line=st.lists(needs, max_size=12))
def test_jobs_placed_one_after_the_other_never_get_more_than_there_is(
    totals: list[int], line: list[RequirementSpec]
) -> None:
    cards = [gpu(index, total) for index, total in enumerate(totals)]
    for spec in line:
        offer = worker(*cards)
        answer = fits(offer, spec, mode="batch")
        if isinstance(answer, Refusal):
            continue
        assert could_if_empty(offer, spec, mode="batch")
        assert len({share.gpu.uuid for share in answer.shares}) == spec.gpu_count
        for share in answer.shares:
            assert share.exclusive or share.mib == spec.vram_mib
            place = share.gpu.index
            more = held(share.mib, exclusive=share.exclusive)
            cards[place] = dataclasses.replace(cards[place], reserved=(*cards[place].reserved, more))

    for card in cards:
        promised = sum(each.mib for each in card.reserved)
        whole = any(each.exclusive for each in card.reserved)
        assert promised <= (card.total_mib if whole else card.total_mib - card.margin_mib)
        assert not whole or len(card.reserved) == 1
