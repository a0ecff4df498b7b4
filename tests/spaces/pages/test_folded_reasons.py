"""A long list of reasons is folded: the nearest first, the rest behind a click, and equal ones told once."""

from __future__ import annotations

from typing import Any

from spaces.why import Row
from spaces.why_folded import ALIKE, BEHIND, NAMES, SHOWN, folded


def row(number: int, sentence: str = "Draining.", **facts: Any) -> Row:
    return Row(worker=f"gpu{number:03}", code="worker_draining", sentence=sentence, **facts)


def different(count: int) -> list[Row]:
    return [row(number, f"Reserved for space {number}.") for number in range(count)]


def test_a_short_list_is_left_as_it_is() -> None:
    rows = [row(number) for number in range(SHOWN)]

    found = folded(rows)

    assert (found.first, found.rest) == (rows, [])


def test_one_row_too_many_is_no_reason_to_fold() -> None:
    assert folded(different(SHOWN + 1)).rest == []
    assert folded(different(SHOWN + 2)).more == 2


def test_the_nearest_stand_there_in_their_order() -> None:
    rows = different(20)

    found = folded(rows)

    assert (found.first, found.rest, found.more) == (rows[:SHOWN], rows[SHOWN:], 12)


def test_equal_sentences_behind_the_click_are_told_once_and_name_their_workers() -> None:
    own = row(99, "Offline.")

    found = folded([*different(SHOWN), *(row(number) for number in range(ALIKE)), own])

    assert [each.worker for each in found.rest] == ["3 workers", "gpu099"]
    assert (found.rest[0].sentence, found.rest[0].names) == ("Draining.", "gpu000, gpu001, gpu002")
    assert found.more == ALIKE + 1


def test_workers_and_gpus_of_one_reason_are_counted_apart() -> None:
    rows = [row(number, gpu=f"GPU {number}" if number % 2 else "") for number in range(2 * ALIKE)]

    found = folded([*different(SHOWN), *rows])

    assert sorted(each.group for each in found.rest) == ["", f"{ALIKE} GPUs"]


def test_a_few_equal_ones_stay_apart() -> None:
    few = [row(number) for number in range(ALIKE - 1)]

    assert folded([*different(SHOWN), *few, row(9, "Offline.")]).rest[:-1] == few


def test_of_very_many_workers_a_few_are_named_and_the_others_counted() -> None:
    found = folded([*different(SHOWN), *(row(number) for number in range(NAMES + 5))])

    assert found.rest[0].names.endswith("gpu011 and 5 more")


def test_gpus_of_one_worker_are_named_by_it_and_counted() -> None:
    cards = [row(7, "Reserved.", gpu=f"GPU {number} RTX 4090") for number in range(16)]

    (found,) = folded([*different(SHOWN), *cards]).rest

    assert (found.worker, found.gpu, found.group, found.names) == ("gpu007", "", "16 GPUs", "")


def test_simulated_ones_are_never_told_with_real_ones() -> None:
    cards = [row(number, gpu="GPU 0", simulated=number % 2 == 0) for number in range(2 * ALIKE)]

    found = folded([*different(SHOWN), *cards])

    assert [each.simulated for each in found.rest] == [True, False]


def test_nothing_is_left_out_without_a_word() -> None:
    found = folded(different(SHOWN + BEHIND + 30))

    assert (len(found.rest), found.more, found.untold) == (BEHIND, BEHIND + 30, 30)
