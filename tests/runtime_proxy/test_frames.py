"""WebSocket frames pass as they came, however the network cuts them; what breaks the rules ends it."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime_proxy.frames import (
    BINARY,
    CLOSE,
    CONTINUATION,
    PING,
    PONG,
    TEXT,
    Close,
    FrameReader,
    close_frame,
    control_frame,
    masked_with,
)

KEY = b"\x01\x80\xff\x00"
LIMIT = 70_000
# How long it takes says nothing: the machine may be busy.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def frame(opcode: int, payload: bytes = b"", *, fin: bool = True, masked: bool = False, odd: int = 0) -> bytes:
    """A frame as an endpoint writes it; `odd` sets further bits of its first byte."""
    size, mask_bit = len(payload), 0x80 if masked else 0
    if size < 126:
        length = bytes((mask_bit | size,))
    elif size < 65536:
        length = bytes((mask_bit | 126,)) + struct.pack("!H", size)
    else:
        length = bytes((mask_bit | 127,)) + struct.pack("!Q", size)
    first = bytes((opcode | odd | (0x80 if fin else 0),))
    return first + length + (KEY + masked_with(KEY, payload) if masked else payload)


class Heard:
    """Everything that a reader made of a stream."""

    def __init__(self, pieces: list[bytes], *, masked: bool) -> None:
        self.reader = FrameReader(masked=masked, longest_message=LIMIT)
        self.passed = b""
        self.pings: list[bytes] = []
        for piece in pieces:
            self.passed += self.reader.feed(piece)
            if self.reader.ping is not None:
                self.pings.append(self.reader.ping)
                self.reader.ping = None

    @property
    def violation(self) -> tuple[int, str] | None:
        found = self.reader.violation
        return None if found is None else (found.code, found.reason)


def cut(stream: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(stream) + 1) for place in places}), len(stream)]
    return [stream[start:end] for start, end in pairwise(edges)]


payloads = st.one_of(
    st.binary(max_size=10), st.integers(0, 140).map(bytes), st.sampled_from([125, 126, 65536]).map(bytes)
)


@st.composite
def streams(draw: st.DrawFn) -> tuple[list[tuple[int, bytes, bool]], bool]:
    """Messages in fragments, with control frames in between."""
    frames: list[tuple[int, bytes, bool]] = []
    for _ in range(draw(st.integers(0, 5))):
        fragments = draw(st.lists(payloads, min_size=1, max_size=3))
        opcode = draw(st.sampled_from([TEXT, BINARY]))
        for number, payload in enumerate(fragments):
            if draw(st.booleans()):
                frames.append((draw(st.sampled_from([PING, PONG])), draw(st.binary(max_size=125)), True))
            frames.append((opcode if number == 0 else CONTINUATION, payload, number == len(fragments) - 1))
    return frames, draw(st.booleans())


@unhurried
@given(streams(), st.lists(st.integers(0, 400_000), max_size=8))
def test_messages_pass_byte_for_byte_and_controls_are_taken_out(
    case: tuple[list[tuple[int, bytes, bool]], bool], places: list[int]
):
    frames, masked = case
    if max((total for total in sizes(frames)), default=0) > LIMIT:
        return
    stream = b"".join(frame(opcode, payload, fin=fin, masked=masked) for opcode, payload, fin in frames)
    messages = b"".join(
        frame(opcode, payload, fin=fin, masked=masked) for opcode, payload, fin in frames if opcode not in (PING, PONG)
    )

    heard = Heard(cut(stream, places), masked=masked)

    assert heard.passed == messages
    assert heard.violation is None
    assert heard.reader.between_frames
    assert not heard.reader.over
    pings = [payload for opcode, payload, _ in frames if opcode == PING]
    assert heard.pings == [ping for ping in heard.pings if ping in pings]
    assert heard.pings[-1:] == pings[-1:]


def sizes(frames: list[tuple[int, bytes, bool]]) -> Iterator[int]:
    total = 0
    for opcode, payload, _ in frames:
        if opcode not in (PING, PONG):
            total = total + len(payload) if opcode == CONTINUATION else len(payload)
            yield total


@unhurried
@given(st.binary(max_size=300), st.booleans(), st.lists(st.integers(0, 300), max_size=8))
def test_the_cutting_makes_no_difference_to_any_stream(stream: bytes, masked: bool, places: list[int]):
    whole = Heard([stream], masked=masked)
    in_pieces = Heard(cut(stream, places), masked=masked)
    byte_by_byte = Heard([stream[at : at + 1] for at in range(len(stream))], masked=masked)

    for other in (in_pieces, byte_by_byte):
        assert other.passed == whole.passed
        assert other.violation == whole.violation
        assert other.reader.close == whole.reader.close
        assert other.pings[-1:] == whole.pings[-1:]
        assert other.reader.between_frames == whole.reader.between_frames


def test_a_frame_passes_before_it_is_complete():
    reader = FrameReader(masked=False)
    long = frame(BINARY, bytes(1000))

    assert reader.feed(long[:300]) == long[:300]
    assert not reader.between_frames
    assert reader.feed(long[300:]) == long[300:]
    assert reader.between_frames


def test_a_head_is_held_back_until_its_length_is_there():
    reader = FrameReader(masked=False)
    long = frame(BINARY, bytes(70_000))

    assert reader.feed(long[:9]) == b""
    assert reader.between_frames
    assert reader.feed(long[9:20]) == long[:20]


WRONG = {
    "a reserved bit": (frame(TEXT, b"x", odd=0x40), 1002),
    "a reserved opcode": (frame(0x3, b"x"), 1002),
    "a reserved control": (frame(0xB), 1002),
    "masked by an app": (frame(TEXT, b"x", masked=True), 1002),
    "a long control": (bytes((0x89, 126)) + struct.pack("!H", 126) + bytes(126), 1002),
    "a control in pieces": (frame(PING, b"x", fin=False), 1002),
    "a continuation of nothing": (frame(CONTINUATION, b"x"), 1002),
    "a message within a message": (frame(TEXT, b"x", fin=False) + frame(TEXT, b"y"), 1002),
    "a message that is too long": (frame(BINARY, bytes(LIMIT + 1)), 1009),
    "fragments that are too long": (
        frame(BINARY, bytes(LIMIT), fin=False) + frame(CONTINUATION, b"x", fin=False),
        1009,
    ),
    "a length of 2^63": (bytes((0x82, 127)) + b"\x80" + bytes(7), 1009),
    "half a close code": (frame(CLOSE, b"\x03"), 1002),
    "a reason that is no text": (frame(CLOSE, b"\x03\xe8\xff"), 1007),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_breaks_the_rules_ends_it_with_the_right_code(name: str):
    stream, code = WRONG[name]
    before = frame(TEXT, b"before")

    for pieces in ([before + stream + b"after"], [bytes((byte,)) for byte in before + stream + b"after"]):
        heard = Heard(pieces, masked=False)

        assert heard.reader.violation is not None
        assert heard.reader.violation.code == code
        assert heard.passed.startswith(before)
        assert b"after" not in heard.passed
        assert heard.reader.news
        assert heard.reader.between_frames


def test_a_browsers_frames_are_masked():
    heard = Heard([frame(TEXT, b"x")], masked=True)

    assert heard.violation is not None
    assert heard.passed == b""


def test_a_message_as_long_as_the_limit_passes():
    stream = frame(BINARY, bytes(LIMIT - 1), fin=False) + frame(CONTINUATION, b"x") + frame(BINARY, bytes(LIMIT))

    heard = Heard([stream], masked=False)

    assert heard.passed == stream
    assert heard.violation is None


@pytest.mark.parametrize(
    ("payload", "said"),
    [(b"", Close(None, "")), (b"\x03\xe8", Close(1000, "")), (b"\x0f\xa1" + "せ".encode(), Close(4001, "せ"))],
)
@pytest.mark.parametrize("masked", [False, True])
def test_a_close_is_read_and_nothing_passes_after_it(payload: bytes, said: Close, masked: bool):
    before = frame(TEXT, b"before", masked=masked)

    heard = Heard([before + frame(CLOSE, payload, masked=masked) + before, before], masked=masked)

    assert heard.reader.close == said
    assert heard.passed == before


@pytest.mark.parametrize("masked", [False, True])
def test_our_own_controls_are_read_as_they_were_meant(masked: bool):
    long = "せ" * 60  # 180 bytes: more than a reason may have

    heard = Heard([control_frame(PING, b"abc", masked=masked), close_frame(4403, long, masked=masked)], masked=masked)

    assert heard.pings == [b"abc"]
    assert heard.reader.close == Close(4403, "せ" * 41)


def test_masks_of_ours_cannot_be_foretold():
    assert len({control_frame(PING, b"x", masked=True) for _ in range(20)}) > 1
