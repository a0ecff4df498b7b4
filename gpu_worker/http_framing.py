"""HTTP/1.1 message heads and body lengths (RFC 9112), as far as a relay must know them; pure.

Strict where leniency would let two readers disagree about where a message ends (request smuggling), and otherwise
byte for byte: header lines are kept as they came.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^\x00-\x20\x7f]+) HTTP/1\.([01])")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([^\r\n\x00]*))?")
_LONGEST_CHUNK_LINE = 4096
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"upgrade",
    }
)
"""Fields for one connection only (RFC 9110 §7.6.1). Transfer-Encoding and Trailer stay: bodies pass as they are."""


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
        dropped -= {b"transfer-encoding", b"content-length"}  # naming these in Connection must not unframe a body
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
    fields = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon or _TOKEN.fullmatch(name) is None:
            raise BadMessage("field name")  # covers folded lines too
        if b"\n" in value or b"\r" in value or b"\0" in value:
            raise BadMessage("field value")
        fields.append((name, value.strip(b" \t")))
    return first, tuple(fields)


def write_head(first: bytes, fields: list[tuple[bytes, bytes]]) -> bytes:
    return b"\r\n".join([first, *(name + b": " + value for name, value in fields), b"", b""])


class Body:
    """How far a body goes; fed with what the peer sends, it says how much of it belongs to the message."""

    complete = False

    def take(self, data: bytes | bytearray) -> int:
        """How many of the first bytes of *data* belong to the body (0: wait for more, unless complete)."""
        raise NotImplementedError

    def end_of_stream(self) -> None:
        """The peer closed. Raises BadMessage when the body was not complete."""
        if not self.complete:
            raise BadMessage("the body broke off")


class SizedBody(Body):
    def __init__(self, size: int) -> None:
        self._left = size
        self.complete = size == 0

    def take(self, data: bytes | bytearray) -> int:
        taken = min(self._left, len(data))
        self._left -= taken
        self.complete = self._left == 0
        return taken


class BodyUntilClose(Body):
    def take(self, data: bytes | bytearray) -> int:
        return len(data)

    def end_of_stream(self) -> None:
        self.complete = True


class ChunkedBody(Body):
    """Chunked coding, passed on as it is: sizes, extensions, trailers."""

    def __init__(self) -> None:
        self._data_left = 0
        self._in_trailer = False

    def take(self, data: bytes | bytearray) -> int:
        at = 0
        while at < len(data) and not self.complete:
            if self._data_left:
                step = min(self._data_left, len(data) - at)
                self._data_left -= step
                at += step
                continue
            end = data.find(b"\r\n", at)
            if end < 0:
                if len(data) - at > _LONGEST_CHUNK_LINE:
                    raise BadMessage("chunk line")
                break
            self._line(bytes(data[at:end]))
            at = end + 2
        return at

    def _line(self, line: bytes) -> None:
        if self._in_trailer:
            self.complete = not line
            return
        size = line.partition(b";")[0].strip(b" \t")
        if not re.fullmatch(rb"[0-9A-Fa-f]{1,16}", size):
            raise BadMessage("chunk size")
        if int(size, 16) == 0:
            self._in_trailer = True
        else:
            self._data_left = int(size, 16) + 2  # and the CRLF that ends the chunk


def request_body(head: Head) -> Body:
    body = _declared_body(head)
    return SizedBody(0) if body is None else body


def response_body(head: Head, method: bytes) -> Body:
    if method == b"HEAD" or head.status in (204, 304) or head.status < 200:
        return SizedBody(0)
    body = _declared_body(head)
    return BodyUntilClose() if body is None else body


def _declared_body(head: Head) -> Body | None:
    codings = head.values(b"transfer-encoding")
    lengths = {length.strip() for value in head.values(b"content-length") for length in value.split(b",")}
    if codings:
        if lengths or len(codings) != 1 or codings[0].lower() != b"chunked" or not head.minor_version:
            raise BadMessage("transfer coding")
        return ChunkedBody()
    if not lengths:
        return None
    length = lengths.pop()
    if lengths or not re.fullmatch(rb"[0-9]{1,18}", length):
        raise BadMessage("content length")
    return SizedBody(int(length))
