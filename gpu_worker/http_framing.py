"""Where message bodies end (RFC 9112), as far as a relay must know it; pure.

Strict where leniency would let two readers disagree about it (request smuggling): what delimits a body is checked here
and written anew, never passed on as it came. The contents pass byte for byte.
"""

from __future__ import annotations

import re

from gpu_worker.http_heads import TEXT, BadMessage, Head, Request, Response, field_key

_CHUNK_LINE = re.compile(rb"([0-9A-Fa-f]{1,16})(?:[ \t]*;[\t\x20-\x7e\x80-\xff]*)?")
_LENGTH = re.compile(rb"[0-9]{1,18}")
_LAST_CHUNK = b"0\r\n\r\n"
_LONGEST_CHUNK_LINE = 4096  # bytes, of a trailer too
_MOST_TRAILERS = 100


class Body:
    """How far a body goes; fed with what the peer sends, it says what of it is to be passed on."""

    __slots__ = ("complete",)

    def __init__(self) -> None:
        self.complete = False

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        """How many of the first bytes of *data* are used up (0: wait for more, unless complete), and what to pass on.

        Raises BadMessage where *data* cannot be the body it was said to be.
        """
        raise NotImplementedError

    def end_of_stream(self) -> bytes:
        """The peer closed: what to pass on at last. Raises BadMessage when the body was not complete."""
        if not self.complete:
            raise BadMessage("the body broke off")
        return b""


class SizedBody(Body):
    __slots__ = ("_left",)

    def __init__(self, size: int) -> None:
        self._left = size
        self.complete = size == 0

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        taken = min(self._left, len(data))
        self._left -= taken
        self.complete = self._left == 0
        return taken, bytes(data) if taken == len(data) else bytes(data[:taken])


class BodyUntilClose(Body):
    """Ends with the connection. *in_chunks*: it is passed on in chunks, so that the end can be told from a break."""

    __slots__ = ("in_chunks",)

    def __init__(self, *, in_chunks: bool) -> None:
        super().__init__()
        self.in_chunks = in_chunks

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        if self.in_chunks and data:
            return len(data), b"".join((b"%x\r\n" % len(data), data, b"\r\n"))
        return len(data), bytes(data)

    def end_of_stream(self) -> bytes:
        self.complete = True
        return _LAST_CHUNK if self.in_chunks else b""


class ChunkedBody(Body):
    """Chunked coding, taken apart and written anew.

    No size, extension, trailer or line end of the sender's is passed on: a chunk that we write is as long as what we
    hold of it. Extensions and trailers have no meaning that an intermediary must keep (RFC 9112 §7.1), and end here.
    """

    __slots__ = ("_at_chunk_end", "_left", "_trailers")

    def __init__(self) -> None:
        super().__init__()
        self._left = 0  # bytes of the chunk under way
        self._at_chunk_end = False
        self._trailers: int | None = None  # how many so far; None before the last chunk

    def take(self, data: bytes | bytearray) -> tuple[int, bytes]:
        at = 0
        written: list[bytes | memoryview] = []
        view = memoryview(data)  # so that each byte is copied once
        while at < len(data) and not self.complete:
            if self._left:
                end = at + min(self._left, len(data) - at)
                written += [b"%x\r\n" % (end - at), view[at:end], b"\r\n"]
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
            written.append(_LAST_CHUNK)
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
            if line.translate(None, TEXT):
                raise BadMessage("trailer")
            field_key(line)
            self._trailers += 1
            if self._trailers > _MOST_TRAILERS:
                raise BadMessage("trailers")
        else:
            self.complete = True


def request_body(head: Request) -> Body:
    body = _declared_body(head)
    return SizedBody(0) if body is None else body


def response_body(head: Response, request: Request) -> Body:
    body = _declared_body(head)  # also where there can be none: contradictions are not passed on
    if request.method == b"HEAD" or is_bodiless(head.status):
        return SizedBody(0)
    return BodyUntilClose(in_chunks=request.minor_version > 0) if body is None else body


def is_bodiless(status: int) -> bool:
    """Whether an answer with *status* ends with its head, whatever its fields say (RFC 9112 §6.3)."""
    return status < 200 or status in (204, 304)


def _declared_body(head: Head) -> Body | None:
    if not head.is_framed:
        return None
    if head.codings:
        if head.lengths or [coding.lower() for coding in head.codings] != [b"chunked"] or not head.minor_version:
            raise BadMessage("transfer coding")
        return ChunkedBody()
    if len(head.lengths) != 1 or _LENGTH.fullmatch(head.lengths[0]) is None:
        raise BadMessage("content length")
    return SizedBody(int(head.lengths[0]))
