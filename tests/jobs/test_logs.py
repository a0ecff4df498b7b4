"""Log text: contiguous, idempotent, bounded, and honest about what was dropped."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pytest_django import Settings

from jobs import logs
from jobs.models import Lease, LogChunk
from tests.factories import JobFactory, WorkerFactory
from tests.jobs.conftest import must_claim

pytestmark = pytest.mark.django_db


@pytest.fixture
def lease() -> Lease:
    JobFactory.create()
    return must_claim(WorkerFactory.create()).lease


def test_text_is_appended_where_the_last_ended(lease: Lease) -> None:
    assert logs.append(lease, "build", offset=0, text="one\n") == 4
    assert logs.append(lease, "build", offset=4, text="two\n") == 8
    assert logs.read(lease, "build") == logs.Piece("one\ntwo\n", 8)


def test_offsets_count_bytes_of_utf_8(lease: Lease) -> None:
    assert logs.append(lease, "run", offset=0, text="日本\n") == 7
    assert logs.next_offsets(lease) == {"run": 7}


def test_a_repeated_piece_is_stored_once_and_an_overlapping_one_only_where_it_is_new(lease: Lease) -> None:
    logs.append(lease, "run", offset=0, text="abc")
    logs.append(lease, "run", offset=0, text="abc")
    logs.append(lease, "run", offset=1, text="bcdef")
    assert logs.read(lease, "run").text == "abcdef"


def test_text_beyond_a_hole_is_refused_and_the_worker_learns_where_to_go_on(lease: Lease) -> None:
    logs.append(lease, "run", offset=0, text="abc")
    assert logs.append(lease, "run", offset=9, text="xyz") == 3
    assert logs.read(lease, "run").text == "abc"


def test_a_reader_goes_on_from_its_offset_even_inside_a_piece(lease: Lease) -> None:
    logs.append(lease, "run", offset=0, text="abcdef")
    assert logs.read(lease, "run", after=4) == logs.Piece("ef", 6)
    assert logs.read(lease, "run", after=6) == logs.Piece("", 6)


def test_nul_is_stored_without_moving_offsets(lease: Lease) -> None:
    assert logs.append(lease, "run", offset=0, text="a\x00b") == 3
    assert logs.read(lease, "run", after=2).text == "b"


def test_head_and_tail_are_kept_and_the_hole_is_told(lease: Lease, settings: Settings) -> None:
    settings.OPENFACE_LOG_STREAM_MAX_BYTES = 200
    offset = 0
    for n in range(100):
        offset = logs.append(lease, "run", offset=offset, text=f"line {n:03}\n")

    text = logs.read(lease, "run").text

    assert text.startswith("line 000\n")
    assert text.endswith("line 099\n")
    assert "bytes dropped" in text
    stored = sum(chunk.end - chunk.offset for chunk in LogChunk.objects.filter(lease=lease))
    assert stored <= 200 + 9 * 2  # whole pieces at either side of the cut


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    text=st.text(max_size=200).filter(lambda t: "\x00" not in t and t.isprintable()),
    cuts=st.lists(st.tuples(st.integers(0, 200), st.booleans()), max_size=12),
)
def test_whatever_is_sent_twice_or_lost_what_is_stored_is_what_was_produced(
    lease: Lease, text: str, cuts: list[tuple[int, bool]]
) -> None:
    LogChunk.objects.filter(lease=lease).delete()
    raw = text.encode()
    acknowledged = 0
    for length, answer_lost in [*cuts, (len(raw), False)]:
        piece = raw[acknowledged : acknowledged + length]
        piece = piece.decode("utf-8", "ignore").encode()  # the worker never splits a character
        expected = logs.append(lease, "run", offset=acknowledged, text=piece.decode())
        if not answer_lost:
            acknowledged = expected
    assert logs.read(lease, "run").text == text
