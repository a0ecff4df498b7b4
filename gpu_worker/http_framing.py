"""HTTP/1.1 message heads and body lengths (RFC 9112), as far as a relay must know them; pure.

Strict where leniency would let two readers disagree about where a message ends (request smuggling): what delimits a
message is checked here and written anew, never passed on as it came. Otherwise byte for byte: names and values of
header fields, and the contents of bodies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^\x00-\x20\x7f]+) HTTP/1\.([01])")
_TEXT = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")  # also no VT, FF, FS to RS: some readers take them for line ends
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_LONGEST_CHUNK_LINE = 4096  # bytes, of a trailer too
_MOST_TRAILERS = 100
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
    }
)
"""Fields for one connection only (RFC 9110 §7.6.1). Transfer-Encoding stays: a chunked body is chunked again."""
FRAMING = frozenset({b"transfer-encoding", b"content-length"})


class BadMessage(Exception):
    """The peer does not speak HTTP/1.1 as we understand it."""


@dataclass(frozen=True)
class Head:
    """One message head. *fields* keep order, case and bytes."""

    fields: tuple[tuple[bytes, bytes], ...]
    minor_version: int
    method: bytes = b""
    target: bytes = b""
    status: int = 0
    reason: bytes = b""

    def values(self, name: bytes) -> list[bytes]:
        return [value for key, value in self.fields if key.lower() == name]

    def tokens(self, name: bytes) -> set[bytes]:
        return {token.strip().lower() for value in self.values(name) for token in value.split(b",") if token.strip()}

    def without(self, *names: bytes) -> list[tuple[bytes, bytes]]:
        """The fields for the next hop: no hop-by-hop ones, none named in Connection, none of *names*."""
        dropped = HOP_BY_HOP | self.tokens(b"connection") | set(names)
        dropped -= FRAMING - set(names)  # naming these in Connection must not unframe a body
        return [(key, value) for key, value in self.fields if key.lower() not in dropped]

    @property
    def upgrade(self) -> bytes | None:
        """The protocol asked for, None when the connection stays HTTP."""
        values = self.values(b"upgrade")
        return values[0] if values and b"upgrade" in self.tokens(b"connection") else None

    @property
    def keeps_alive(self) -> bool:
        tokens = self.tokens(b"connection")
        return b"close" not in tokens if self.minor_version else b"keep-alive" in tokens


def parse_request(data: bytes) -> Head:
    first, fields = _lines(data)
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadMessage("request line")
    return Head(fields, int(match[3]), method=match[1], target=match[2])


def parse_response(data: bytes) -> Head:
    first, fields = _lines(data)
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise BadMessage("status line")
    return Head(fields, int(match[1]), status=int(match[2]), reason=match[3] or b"")


def _lines(data: bytes) -> tuple[bytes, tuple[tuple[bytes, bytes], ...]]:
    first, *lines = data[:-4].split(b"\r\n")
    return first, tuple(_field(line) for line in lines)


def _field(line: bytes) -> tuple[bytes, bytes]:
    name, colon, value = line.partition(b":")
    if not colon or _TOKEN.fullmatch(name) is None:
        raise BadMessage("field name")  # covers folded lines and space before the colon too
    if _TEXT.fullmatch(value) is None:
        raise BadMessage("field value")
    return name, value.strip(b" \t")


def write_head(first: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"\r\n".join([first, *(name + b": " + value for name, value in fields), b"", b""])


class Body:
    """How far a body goes; fed with what the peer sends, it says what of it is to be passed on."""

    complete = False

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        """How many of the first bytes of *data* are used up (0: wait for more, unless complete), and what to pass on.

        Raises BadMessage where *data* cannot be the body it was said to be.
        """
        raise NotImplementedError

    def end_of_stream(self) -> None:
        """The peer closed. Raises BadMessage when the body was not complete."""
        if not self.complete:
            raise BadMessage("the body broke off")


class SizedBody(Body):
    def __init__(self, size: int) -> None:
        self._left = size
        self.complete = size == 0

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        taken = min(self._left, len(data))
        self._left -= taken
        self.complete = self._left == 0
        return taken, _slice(data, 0, taken)


class BodyUntilClose(Body):
    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        return len(data), bytes(data)

    def end_of_stream(self) -> None:
        self.complete = True


class ChunkedBody(Body):
    """Chunked coding, taken apart and written anew.

    No size, extension, trailer or line end of the sender's is passed on: a chunk that we write is as long as what we
    hold of it. Extensions and trailers have no meaning that an intermediary must keep (RFC 9112 §7.1), and end here.
    """

    def __init__(self) -> None:
        self._left = 0  # bytes of the chunk under way
        self._at_chunk_end = False
        self._trailers: int | None = None  # how many so far; None before the last chunk

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        at, written = 0, []
        while at < len(data) and not self.complete:
            if self._left:
                end = at + min(self._left, len(data) - at)
                written += [b"%x\r\n" % (end - at), _slice(data, at, end), b"\r\n"]
                self._left -= end - at
                self._at_chunk_end = self._left == 0
                at = end
            elif self._at_chunk_end:
                end_mark = bytes(data[at : at + 2])
                if not b"\r\n".startswith(end_mark):
                    raise BadMessage("chunk end")
                if len(end_mark) < 2:
                    break
                self._at_chunk_end = False
                at += 2
            else:
                end = data.find(b"\n", at)
                if (len(data) if end < 0 else end) - at > _LONGEST_CHUNK_LINE:
                    raise BadMessage("chunk line")
                if end < 0:
                    break
                self._line(bytes(data[at : end + 1]))
                at = end + 1
        if self.complete:
            written.append(b"0\r\n\r\n")
        return at, b"".join(written)

    def _line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise BadMessage("line end in a chunked body")
        line = line[:-2]
        if self._trailers is None:
            match = _CHUNK_LINE.fullmatch(line)
            if match is None:
                raise BadMessage("chunk size")
            self._left = int(match[1], 16)
            if self._left == 0:
                self._trailers = 0
        elif line:
            _field(line)
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS:
                raise BadMessage("trailers")
        else:
            self.complete = True


def _slice(data: bytes | bytearray, start: int, end: int) -> bytes:
    return bytes(memoryview(data)[start:end])  # one copy, where a slice of a bytearray would take two


def request_body(head: Head) -> Body:
    body = _declared_body(head)
    return SizedBody(0) if body is None else body


def response_body(head: Head, method: bytes) -> Body:
    body = _declared_body(head)  # also where there can be none: contradictions are not passed on
    if method == b"HEAD" or is_bodiless(head.status):
        return SizedBody(0)
    return BodyUntilClose() if body is None else body


def is_bodiless(status: int) -> bool:
    """Whether an answer with *status* ends with its head, whatever its fields say (RFC 9112 §6.3)."""
    return status < 200 or status in (204, 304)


def _declared_body(head: Head) -> Body | None:
    codings, lengths = head.values(b"transfer-encoding"), head.values(b"content-length")
    if codings:
        if lengths or len(codings) != 1 or codings[0].lower() != b"chunked" or not head.minor_version:
            raise BadMessage("transfer coding")
        return ChunkedBody()
    if not lengths:
        return None
    if len(lengths) != 1 or not re.fullmatch(rb"[0-9]{1,18}", lengths[0]):
        raise BadMessage("content length")
    return SizedBody(int(lengths[0]))
