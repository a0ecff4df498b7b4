"""WebSocket frames as they pass: where each ends, and which are for us (RFC 6455 §5). Pure.

Only heads are read. What belongs to messages passes byte for byte, also within a frame, so nothing is kept of a message
whatever its length. Control frames are for one hop: they are taken out.
"""

from __future__ import annotations

import os
from itertools import cycle
from typing import NamedTuple

from runtime_proxy.close_codes import BAD_TEXT, PROTOCOL_ERROR, TOO_BIG

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
LONGEST_CONTROL = 125  # bytes of payload

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
_OPCODES = frozenset({CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG})
_FIN, _RSV, _OPCODE, _CONTROL = 0x80, 0x70, 0x0F, 0x08
_MASKED, _LENGTH = 0x80, 0x7F
_IN_2_BYTES, _IN_8_BYTES = 126, 127  # lengths that say that the length follows
_KEY_BYTES = 4
_WHOLE_TEXT, _WHOLE_BINARY = _FIN | TEXT, _FIN | BINARY
_NO_MESSAGE = -1


class Violation(Exception):
    """The peer broke the protocol, or a limit. `code` and `reason` are for its close frame."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason


class Close(NamedTuple):
    """What a close frame said. `code` None: nothing."""

    code: int | None
    reason: str


class FrameReader:
    """Reads what one side sends. Feed it bytes as they come; it returns those that go on to the other side.

    `news` says that something is there for us: a `ping`, the `close`, or a `violation`; after the latter two nothing
    passes any more. They are the same however the stream was cut.
    """

    def __init__(self, *, masked: bool, longest_message: int = MAX_MESSAGE_BYTES) -> None:
        self.news = False
        self.ping: bytes | None = None  # the last one; earlier ones need no answer (RFC 6455 §5.5.3)
        self.close: Close | None = None
        self.violation: Violation | None = None
        self._mask_bit = _MASKED if masked else 0
        self._key_bytes = _KEY_BYTES if masked else 0
        self._longest_message = longest_message
        self._left = 0  # bytes still to come of the frame of which something has passed
        self._held = b""  # the beginning of a head, or of a control frame
        self._message = _NO_MESSAGE  # bytes so far of a message that is not complete
        # A whole small frame in one read is what comes nearly always: one comparison tells it.
        self._plain = True
        self._least, self._too_long = 2 + self._key_bytes, 2 + self._key_bytes + _IN_2_BYTES
        self._second_byte_less_size = self._mask_bit - self._least

    @property
    def between_frames(self) -> bool:
        """Whether what has passed ends with a whole frame, so that another may follow."""
        return self._left == 0

    @property
    def over(self) -> bool:
        """Whether nothing more will pass."""
        return self.close is not None or self.violation is not None

    def feed(self, data: bytes) -> bytes:
        """Take the next bytes of the stream, in any cutting; return those that go on."""
        size = len(data)
        if (
            self._plain
            and self._least <= size < self._too_long
            and data[1] == size + self._second_byte_less_size
            and (data[0] == _WHOLE_BINARY or data[0] == _WHOLE_TEXT)
        ):
            return data
        if self._left >= size:
            self._left -= size
            self._plain = self._left == 0 and self._message == _NO_MESSAGE
            return data
        if self.over:
            return b""
        passing = self._walk(data)
        self._plain = not (self._left or self._held or self.over) and self._message == _NO_MESSAGE
        return passing

    def _walk(self, data: bytes) -> bytes:
        """Go from frame to frame; return the bytes of those that pass."""
        if self._held:
            data, self._held = self._held + data, b""
        end = len(data)
        start = 0  # of what passes and is not yet in `passing`
        at, self._left = self._left, 0
        passing: list[bytes] = []
        try:
            while at < end and self.close is None:
                size = self._size_at(data, at)
                opcode = data[at] & _OPCODE
                if not size or (opcode & _CONTROL and at + size > end):
                    self._held, end = data[at:], at
                elif opcode & _CONTROL:
                    passing.append(data[start:at])
                    start = at
                    self._note(opcode, data[at : at + size])
                    at = start = at + size
                else:
                    at += size
                    self._left = max(at - end, 0)
        except Violation as violation:
            self.violation, self.news, end = violation, True, at
        if self.close is not None:
            end = start
        passing.append(data[start:end])
        return b"".join(passing) if len(passing) > 1 else passing[0]

    def _size_at(self, data: bytes, at: int) -> int:
        """Return how long the frame is with its head, 0 where too little of the head is there. Raises Violation."""
        if at + 2 > len(data):
            return 0
        first, second = data[at], data[at + 1]
        if first & _RSV or first & _OPCODE not in _OPCODES:
            raise Violation(PROTOCOL_ERROR, "A frame of an unknown kind.")
        if second & _MASKED != self._mask_bit:
            raise Violation(PROTOCOL_ERROR, "A frame without its mask." if self._mask_bit else "A masked frame.")
        length = second & _LENGTH
        if first & _CONTROL:
            if length > LONGEST_CONTROL or not first & _FIN:
                raise Violation(PROTOCOL_ERROR, "A control frame that is long or in pieces.")
            return 2 + self._key_bytes + length
        head = 2
        if length >= _IN_2_BYTES:
            head = 4 if length == _IN_2_BYTES else 10
            if at + head > len(data):
                return 0
            length = int.from_bytes(data[at + 2 : at + head], "big")
        self._count(first, length)
        return head + self._key_bytes + length

    def _count(self, first: int, length: int) -> None:
        """Note a frame of a message. Raises Violation where it does not fit, or makes the message too long."""
        if first & _OPCODE == CONTINUATION:
            if self._message == _NO_MESSAGE:
                raise Violation(PROTOCOL_ERROR, "A continuation of nothing.")
            length += self._message
        elif self._message != _NO_MESSAGE:
            raise Violation(PROTOCOL_ERROR, "A message within a message.")
        if length > self._longest_message:
            raise Violation(TOO_BIG, f"A message is longer than {self._longest_message // 1048576} MiB.")
        self._message = _NO_MESSAGE if first & _FIN else length

    def _note(self, opcode: int, frame: bytes) -> None:
        payload = frame[2 + self._key_bytes :]
        if self._key_bytes:
            payload = masked_with(frame[2:6], payload)
        if opcode == PING:
            self.ping, self.news = payload, True
        elif opcode == CLOSE:
            self.close, self.news = read_close(payload), True


def read_close(payload: bytes) -> Close:
    """Return what a close frame says. Raises Violation."""
    if not payload:
        return Close(None, "")
    if len(payload) == 1:
        raise Violation(PROTOCOL_ERROR, "A close code of one byte.")
    try:
        return Close(int.from_bytes(payload[:2], "big"), payload[2:].decode("utf-8"))
    except UnicodeDecodeError:
        raise Violation(BAD_TEXT, "A reason that is no text.") from None


def control_frame(opcode: int, payload: bytes = b"", *, masked: bool) -> bytes:
    """Return a control frame of ours; `masked` as clients must."""
    if not masked:
        return bytes((_FIN | opcode, len(payload))) + payload
    key = os.urandom(_KEY_BYTES)
    return bytes((_FIN | opcode, _MASKED | len(payload))) + key + masked_with(key, payload)


def close_frame(code: int, reason: str, *, masked: bool) -> bytes:
    """Return a close frame; the reason is cut where it is too long."""
    text = reason.encode("utf-8")[: LONGEST_CONTROL - 2].decode("utf-8", "ignore").encode("utf-8")
    return control_frame(CLOSE, code.to_bytes(2, "big") + text, masked=masked)


def masked_with(key: bytes, payload: bytes) -> bytes:
    """Put the mask on, or take it off. For small payloads."""
    return bytes(byte ^ of_key for byte, of_key in zip(payload, cycle(key), strict=False))
