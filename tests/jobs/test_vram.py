"""The arithmetic of one GPU holds for the numbers of real cards, whatever is placed, measured and cleared on them."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import vram
from jobs.vram import GpuOffer, Held, Obstacle, Share
from spaces import durations
from spaces.topics import plan

# What drivers tell of cards that are sold with so many GB.
CARDS = {
    8_188: 8,  # RTX 3070, 4060
    12_287: 12,  # RTX 3060
    12_288: 12,
    16_376: 16,  # RTX 4080
    24_563: 24,  # RTX 4090, one MiB less with some drivers
    24_564: 24,  # RTX 4090
    49_140: 48,  # RTX A6000
    81_559: 80,  # H100
}
GB = 953  # MiB of a sold gigabyte, rounded down

cards = st.sampled_from(sorted(CARDS))
shares = st.floats(min_value=0, max_value=1)


def card(total_mib: int = 24_564, *, used: int = 0, reserved: Iterable[Held] = (), **facts: Any) -> GpuOffer:
    """A card whose driver tells the truth: free is what nobody uses. `used`: by processes that are not ours."""
    held = tuple(reserved)
    free = max(0, total_mib - used - sum(each.used_mib or 0 for each in held))
    values: dict[str, Any] = {
        "free_mib": free,
        "foreign_mib": used,
        "foreign": ((4711, "python", used),) * bool(used),
    }
    made = GpuOffer(gpu_id=1, uuid="GPU-1", index=0, model="Card", total_mib=total_mib, free_mib=free, reserved=held)
    return dataclasses.replace(made, **(values | facts))


def held(mib: int, *, used: int | None = 0, exclusive: bool = False) -> Held:
    return Held(uuid.uuid4(), mib, exclusive, used_mib=used, name="alice/app")


def placed(gpu: GpuOffer, share: Share) -> GpuOffer:
    return dataclasses.replace(gpu, reserved=(*gpu.reserved, held(share.mib, used=None, exclusive=share.exclusive)))


class TestTheNumbersOfRealCards:
    @pytest.mark.parametrize("sold", [6, 12, 24, 48, 80])
    def test_a_need_is_said_in_the_unit_of_its_topic_by_commands_and_on_pages(self, sold: int) -> None:
        need = plan(["space", "gpu", f"vram-{sold}gb"]).requirement.vram_mib

        assert need is not None
        assert vram.needed_memory(need) == durations.needed_memory(need) == f"{sold} GB"
        assert vram.needed_memory(need + 1) == durations.needed_memory(need + 1) == vram.gigabytes(need + 1)

    @pytest.mark.parametrize(("total", "sold"), CARDS.items())
    def test_an_idle_card_fits_its_own_topic(self, total: int, sold: int) -> None:
        need = plan(["space", "gpu", f"vram-{sold}gb"]).requirement.vram_mib

        share = vram.share_of(card(total, used=400), need)

        assert share == Share(card(total, used=400), total, exclusive=True)

    @pytest.mark.parametrize(
        ("total", "larger"), [(total, sold) for total in CARDS for sold in CARDS.values() if sold > CARDS[total]]
    )
    def test_and_not_that_of_a_larger_one(self, total: int, larger: int) -> None:
        need = plan(["space", "gpu", f"vram-{larger}gb"]).requirement.vram_mib

        assert vram.share_of(card(total), need) == Obstacle("gpu_too_small", never=True)

    @given(total=cards, part=shares)
    def test_an_idle_card_fits_every_topic_below_its_own(self, total: int, part: float) -> None:
        need = plan(["space", "gpu", f"vram-{max(1, round(part * CARDS[total]))}gb"]).requirement.vram_mib

        assert isinstance(vram.share_of(card(total, used=400), need), Share)

    def test_two_jobs_of_12_gb_share_a_card_of_24_and_a_third_does_not(self) -> None:
        need = plan(["space", "gpu", "vram-12gb"]).requirement.vram_mib
        gpu = card(24_564)
        for _ in range(2):
            share = vram.share_of(gpu, need)
            assert isinstance(share, Share)
            assert not share.exclusive
            gpu = placed(gpu, share)

        refused = vram.share_of(gpu, need)

        assert refused == Obstacle("gpu_vram_reserved")

    def test_two_jobs_of_13_gb_do_not(self) -> None:
        share = vram.share_of(card(24_564), 13 * GB)
        assert isinstance(share, Share)

        assert vram.share_of(placed(card(24_564), share), 13 * GB) == Obstacle("gpu_vram_reserved")


class TestWhatIsAvailable:
    def test_of_an_idle_card_all_but_the_margin(self) -> None:
        assert vram.available_mib(card(24_564)) == 24_564 - 512

    def test_the_margin_is_the_operators(self) -> None:
        assert vram.available_mib(card(24_564, margin_mib=2_000)) == 22_564

    def test_less_what_is_promised_although_nobody_uses_it_yet(self) -> None:
        assert vram.available_mib(card(24_564, reserved=[held(8_000, used=0)])) == 24_564 - 8_000 - 512

    def test_use_within_a_promise_is_not_counted_twice(self) -> None:
        assert vram.available_mib(card(24_564, reserved=[held(8_000, used=7_900)])) == 24_564 - 8_000 - 512

    def test_use_beyond_a_promise_counts(self) -> None:
        assert vram.available_mib(card(24_564, reserved=[held(8_000, used=10_000)])) == 24_564 - 10_000 - 512

    def test_what_others_use_counts(self) -> None:
        gpu = card(24_564, used=3_000, reserved=[held(8_000, used=2_000)])

        assert vram.available_mib(gpu) == 24_564 - 3_000 - 8_000 - 512

    def test_never_below_nothing(self) -> None:
        assert vram.available_mib(card(24_564, used=24_000, reserved=[held(8_000, used=None)])) == 0

    def test_nothing_beside_who_has_the_whole(self) -> None:
        assert vram.available_mib(card(24_564, reserved=[held(24_564, exclusive=True)])) == 0


class TestAsAWhole:
    def test_who_does_not_say_how_much_gets_all_of_it(self) -> None:
        assert vram.share_of(card(), None) == Share(card(), 24_564, exclusive=True)

    def test_who_asks_for_a_whole_one_gets_it_whatever_he_needs(self) -> None:
        assert vram.share_of(card(), 2_000, whole=True) == Share(card(), 24_564, exclusive=True)

    @pytest.mark.parametrize(("vram_mib", "whole"), [(22_107, False), (22_108, True)])
    def test_nine_tenths_of_a_card_are_all_of_it(self, vram_mib: int, whole: bool) -> None:
        share = vram.share_of(card(24_564), vram_mib)

        assert isinstance(share, Share)
        assert (share.exclusive, share.mib) == ((True, 24_564) if whole else (False, vram_mib))

    def test_more_than_can_ever_be_shared_out_is_all_of_it(self) -> None:
        gpu = card(4_096)  # nine tenths of it are more than it has beside the margin
        need = 4_096 - 512 + 1

        share = vram.share_of(gpu, need)

        assert share == Share(gpu, 4_096, exclusive=True)

    def test_a_desktop_does_not_keep_a_card_from_being_idle(self) -> None:
        assert isinstance(vram.share_of(card(12_287, used=1_536), None), Share)
        assert vram.share_of(card(12_287, used=1_537), None) == Obstacle("gpu_foreign_use")

    def test_of_a_large_card_a_tenth_may_be_used(self) -> None:
        assert isinstance(vram.share_of(card(81_559, used=8_155), None), Share)
        assert vram.share_of(card(81_559, used=8_156), None) == Obstacle("gpu_foreign_use")

    def test_memory_that_no_listed_process_owns_up_to_counts_as_foreign(self) -> None:
        gpu = card(24_564, free_mib=20_000, foreign_mib=0, foreign=())  # left behind by a crash

        assert vram.foreign_mib(gpu) == 4_564
        assert vram.share_of(gpu, None) == Obstacle("gpu_foreign_use")

    def test_nobody_shares_with_who_has_the_whole(self) -> None:
        gpu = card(reserved=[held(24_564, exclusive=True)])

        assert vram.share_of(gpu, 100) == Obstacle("gpu_reserved")
        assert vram.share_of(gpu, None) == Obstacle("gpu_reserved")

    def test_nobody_gets_the_whole_of_what_is_shared(self) -> None:
        assert vram.share_of(card(reserved=[held(100)]), None) == Obstacle("gpu_reserved")


class TestWhereUseCannotBeMeasured:
    @pytest.mark.parametrize("facts", [{"measurable": False}, {"free_mib": None}], ids=["per process", "free"])
    def test_a_card_is_given_as_a_whole(self, facts: dict[str, Any]) -> None:
        gpu = card(**facts)

        assert vram.share_of(gpu, 6_000) == Share(gpu, 24_564, exclusive=True)

    @pytest.mark.parametrize("facts", [{"measurable": False}, {"free_mib": None}], ids=["per process", "free"])
    def test_and_to_one_job_at_a_time(self, facts: dict[str, Any]) -> None:
        gpu = card(reserved=[held(6_000, used=None)], **facts)

        assert vram.share_of(gpu, 6_000) == Obstacle("gpu_unmeasured")
        assert vram.available_mib(gpu) == 0

    def test_what_the_job_on_it_may_be_using_is_not_called_foreign(self) -> None:
        gpu = card(measurable=False, free_mib=4_000, reserved=[held(24_564, used=None, exclusive=True)])

        assert vram.foreign_mib(gpu) == 0

    def test_without_a_size_it_is_for_those_who_name_none(self) -> None:
        gpu = card(0, free_mib=None)

        assert vram.share_of(gpu, None) == Share(gpu, 0, exclusive=True)
        assert vram.share_of(gpu, 1) == Obstacle("gpu_size_unknown")


class TestBestFit:
    def test_what_is_left_of_a_share_is_what_the_next_one_can_get(self) -> None:
        share = vram.share_of(card(24_564), 10_000)
        assert isinstance(share, Share)

        assert vram.left_after(share) == vram.available_mib(placed(card(24_564), share)) == 24_564 - 10_000 - 512

    def test_nothing_is_left_of_a_whole(self) -> None:
        assert vram.left_after(Share(card(), 24_564, exclusive=True)) == 0


class TestOveruse:
    @pytest.mark.parametrize(("reserved", "used", "over"), [(1_000, 1_256, False), (1_000, 1_257, True)])
    def test_a_small_excess_is_not_worth_a_word(self, reserved: int, used: int, over: bool) -> None:
        assert vram.exceeds(reserved, used) == over

    @given(reserved=st.integers(1, 100_000), used=st.integers(0, 200_000))
    def test_a_steady_use_is_never_both_over_and_back(self, reserved: int, used: int) -> None:
        assert not (vram.exceeds(reserved, used) and vram.back_within(reserved, used))


# --- whatever happens ----------------------------------------------------------------------------------------------

requests = st.one_of(st.none(), st.integers(1, 90_000))
steps = st.lists(
    st.one_of(
        st.tuples(st.just("place"), requests),
        st.tuples(st.just("clear"), shares),
        st.tuples(st.just("use"), st.tuples(shares, st.floats(0, 1.5))),
        st.tuples(st.just("foreign"), shares),
    ),
    max_size=30,
)


@settings(max_examples=300)
@given(total=cards, script=steps)
def test_no_sequence_of_placements_uses_and_clears_promises_more_than_there_is(total: int, script: list[tuple]) -> None:
    holders: list[Held] = []
    foreign = 0
    for act, value in script:
        match act:
            case "place":
                gpu = card(total, used=foreign, reserved=holders)
                share = vram.share_of(gpu, value)
                if isinstance(share, Share):
                    holders.append(held(share.mib, used=None, exclusive=share.exclusive))
            case "clear" if holders:
                del holders[int(value * (len(holders) - 1))]
            case "use" if holders:
                place = int(value[0] * (len(holders) - 1))
                room = total - foreign - sum(each.used_mib or 0 for n, each in enumerate(holders) if n != place)
                used = max(0, min(room, int(value[1] * holders[place].mib)))
                holders[place] = dataclasses.replace(holders[place], used_mib=used)
            case "foreign":
                foreign = int(value * (total - sum(each.used_mib or 0 for each in holders)))

        promised = sum(each.mib for each in holders)
        if any(each.exclusive for each in holders):
            assert (len(holders), promised) == (1, total)
        else:
            assert promised <= max(0, total - vram.MARGIN_MIB)


@st.composite
def truthful_cards(draw: st.DrawFn) -> GpuOffer:
    """A card in any state that placements can bring it to, with any use of ours and of others."""
    total = draw(cards)
    gpu = card(total)
    for request in draw(st.lists(requests, max_size=6)):
        share = vram.share_of(gpu, request)
        if isinstance(share, Share):
            gpu = placed(gpu, share)
    room = total
    reserved = []
    for each in gpu.reserved:
        used = draw(st.one_of(st.none(), st.integers(0, min(room, each.mib))))
        room -= used or 0
        reserved.append(dataclasses.replace(each, used_mib=used))
    return card(total, used=draw(st.integers(0, room)), reserved=reserved)


@given(gpu=truthful_cards(), request=requests)
def test_what_is_placed_can_be_used_in_full_if_nobody_else_grows(gpu: GpuOffer, request: int | None) -> None:
    share = vram.share_of(gpu, request)

    if isinstance(share, Share) and not share.exclusive:
        grown = sum(max(each.mib, each.used_mib or 0) for each in gpu.reserved)
        assert gpu.foreign_mib + grown + share.mib <= gpu.total_mib - gpu.margin_mib


@given(gpu=truthful_cards(), request=requests, more=st.integers(1, 30_000))
def test_a_further_promise_never_makes_room(gpu: GpuOffer, request: int | None, more: int) -> None:
    fuller = dataclasses.replace(gpu, reserved=(*gpu.reserved, held(more)))

    assert vram.available_mib(fuller) <= vram.available_mib(gpu)
    if isinstance(vram.share_of(gpu, request), Obstacle):
        assert isinstance(vram.share_of(fuller, request), Obstacle)


@given(gpu=truthful_cards(), request=requests, more=st.integers(1, 30_000))
def test_more_use_by_others_never_makes_room(gpu: GpuOffer, request: int | None, more: int) -> None:
    taken = min(more, gpu.free_mib or 0)
    fuller = dataclasses.replace(gpu, free_mib=(gpu.free_mib or 0) - taken, foreign_mib=gpu.foreign_mib + taken)

    assert vram.available_mib(fuller) <= vram.available_mib(gpu)
    if isinstance(vram.share_of(gpu, request), Obstacle):
        assert isinstance(vram.share_of(fuller, request), Obstacle)


@given(gpu=truthful_cards(), larger=st.integers(2, 90_000), less=st.integers(1, 90_000))
def test_who_shares_and_asks_for_less_gets_it_too(gpu: GpuOffer, larger: int, less: int) -> None:
    share = vram.share_of(gpu, larger)

    if isinstance(share, Share) and not share.exclusive:
        assert isinstance(vram.share_of(gpu, min(larger, less)), Share)


@given(gpu=truthful_cards(), request=requests)
def test_a_whole_is_given_only_where_nothing_else_is(gpu: GpuOffer, request: int | None) -> None:
    share = vram.share_of(gpu, request)

    if isinstance(share, Share) and share.exclusive:
        assert not gpu.reserved
        assert isinstance(vram.share_of(placed(gpu, share), 1), Obstacle)


@given(gpu=truthful_cards(), request=requests)
def test_an_emptied_card_takes_at_least_what_the_full_one_takes(gpu: GpuOffer, request: int | None) -> None:
    if isinstance(vram.share_of(gpu, request), Share):
        assert isinstance(vram.share_of(vram.emptied(gpu), request), Share)


@given(gpu=truthful_cards())
def test_an_emptied_card_is_left_to_the_others(gpu: GpuOffer) -> None:
    empty = vram.emptied(gpu)

    assert empty.reserved == ()
    assert vram.foreign_mib(empty) == gpu.foreign_mib


@given(gpu=truthful_cards(), request=requests)
def test_an_obstacle_that_never_ends_is_one_of_the_card_alone(gpu: GpuOffer, request: int | None) -> None:
    answer = vram.share_of(gpu, request)

    if isinstance(answer, Obstacle) and answer.never:
        assert answer == vram.share_of(card(gpu.total_mib), request)
