"""One stream of a job's log, from raw bytes to offset-addressed text on its way to the server.

Bytes are decoded incrementally, secrets masked, `\\r` kept. Text waits here until the server has confirmed it, so an
offset is sent again with the same text. What does not fit (a chatty app, a long outage) is dropped with a line that
says so, never silently. Nothing here blocks: the app's output must not wait for the network.
"""

from __future__ import annotations

import codecs
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gpu_worker.masking import Masker
from gpu_worker.protocol import LogChunk

FLUSH_SECONDS = 0.5
FLUSH_BYTES = 32 * 1024
CHUNK_BYTES = 128 * 1024  # six times as much in JSON at worst, and still below the server's 1 MiB
RATE_BYTES_PER_SECOND = 1024 * 1024
BURST_BYTES = 4 * 1024 * 1024
BACKLOG_BYTES = 4 * 1024 * 1024  # kept while the server cannot be reached
BACKLOG_TAIL_BYTES = 1024 * 1024  # of it the newest part, kept when the rest must go
LATE_BYTES = 64 * 1024  # of what is too much at the moment, the newest part: the end of a log says most
LAST_CHARACTERS = 4096  # for the sentence about the app's end


class RateLimit:
    """A token bucket over bytes, shared by the streams of one job."""

    def __init__(
        self,
        *,
        per_second: float = RATE_BYTES_PER_SECOND,
        burst: float = BURST_BYTES,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._tokens, self._at = burst, clock()
        self._lock = threading.Lock()

    def take(self, size: int) -> bool:
        """Whether *size* bytes may pass now. A block above the burst passes when the bucket is full."""
        with self._lock:
            now = self._clock()
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
            self._at = now
            if self._tokens < min(size, self._burst):
                return False
            self._tokens -= size
            return True


@dataclass(frozen=True)
class Mark:
    """Log offset *offset* is where the source (container log, output file) was at *position*."""

    offset: int
    position: str
    after_gap: bool = False
    """Something is missing before it: what comes next may be the rest of a secret."""


class LogStream:
    """Thread-safe. *start* says where the text goes on after a restart of the worker.

    *replays*: the source can be read again from a position (a container's log), so text that the server turns out to
    have already is skipped as it comes by; other streams simply go on behind it.
    """

    def __init__(
        self,
        name: str,
        secrets: Iterable[str] = (),
        *,
        start: Mark | None = None,
        replays: bool = False,
        rate: RateLimit | None = None,
    ) -> None:
        self.name = name
        self._replays = replays
        self._skip = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._masker = Masker(secrets)
        self._rate = rate or RateLimit()
        self._lock = threading.Lock()
        self._base = start.offset if start else 0
        self._text = bytearray()
        self._in_flight = 0
        self._late = bytearray()
        """What the rate has not let pass yet: the newest part of it."""
        self._dropped = 0
        """Bytes of what came before that."""
        self._last = ""
        self._unsafe = self._masker.longest if start is not None and start.after_gap else 0
        """Characters that may be the end of a secret, after a gap."""
        self._marks = [start] if start else []

    # -- in ----------------------------------------------------------------------------------------------------

    def write(self, data: bytes, *, position: str | None = None) -> None:
        """Take what the source gave; *position* is where the source stands after it."""
        with self._lock:
            decoded = self._after_gap(self._decoder.decode(data))
            self._append(self._masker.feed(decoded))
            settled = not self._masker.holds_back and self._decoder.getstate()[0] == b"" and not self._late
            if position is not None and settled:
                self._marks.append(Mark(self._base + len(self._text) - self._skip, position, self._unsafe > 0))

    def remark(self, data: bytes, *, position: str | None = None) -> None:
        """Something of the source is missing here, and *data* says so: what is cut at either side may be a secret."""
        with self._lock:
            self._decoder.reset()
            self._append(self._masker.cut() + data.decode())
            self._unsafe = self._masker.longest
            if position is not None and not self._late:
                self._marks.append(Mark(self._base + len(self._text) - self._skip, position, self._unsafe > 0))

    def _after_gap(self, text: str) -> str:
        """Without the rest of a line whose beginning is missing, as far as a secret could reach into it."""
        if not self._unsafe:
            return text
        end = text.find("\n", 0, self._unsafe)
        cut = min(self._unsafe, len(text)) if end < 0 else end + 1
        self._unsafe = 0 if end >= 0 else self._unsafe - cut
        return text[cut:]

    def line(self, text: str) -> None:
        """One line of our own."""
        self.write(f"{text}\n".encode())

    def end(self) -> None:
        """The source has ended: nothing is held back any longer."""
        with self._lock:
            rest = self._masker.feed(self._decoder.decode(b"", final=True)) + self._masker.end()
            self._append(rest)
            self._take_late()

    @property
    def last(self) -> str:
        """The newest text, at most LAST_CHARACTERS of it; masked, unlike any other rest of the source."""
        with self._lock:
            return self._last

    def _append(self, text: str) -> None:
        if not text:
            return
        self._last = (self._last + text)[-LAST_CHARACTERS:]
        data = text.replace("\0", "\ufffd").encode("utf-8", "replace")  # PostgreSQL stores no NUL
        if self._skip:
            skipped = min(self._skip, len(data))
            self._skip -= skipped
            data = data[skipped:]
        self._late += data
        if self._rate.take(len(self._late)):
            self._take_late()
        elif len(self._late) > LATE_BYTES:
            cut = _boundary(self._late, len(self._late) - LATE_BYTES)
            cut = self._late.find(b"\n", cut) + 1 or cut  # a line of which nothing else is there says nothing
            self._dropped += cut
            del self._late[:cut]

    def _take_late(self) -> None:
        if self._dropped:
            self._text += _dropped_line(self._dropped)
            self._dropped = 0
        self._text += self._late
        self._late.clear()
        if len(self._text) > BACKLOG_BYTES:
            self._shorten()

    def _shorten(self) -> None:
        """Drop the middle: what is on its way keeps its offsets, the newest part is worth most."""
        head = _boundary(self._text, max(self._in_flight, CHUNK_BYTES))
        tail = _boundary(self._text, len(self._text) - BACKLOG_TAIL_BYTES)
        gap = _dropped_line(tail - head)
        shift = len(gap) - (tail - head)
        self._text[head:tail] = gap
        first, last = self._base + head, self._base + tail
        self._marks = [m for m in self._marks if m.offset <= first] + [
            replace(m, offset=m.offset + shift) for m in self._marks if m.offset >= last
        ]

    # -- out ---------------------------------------------------------------------------------------------------

    @property
    def length(self) -> int:
        """Bytes of text so far: the offset after the last character."""
        with self._lock:
            return self._base + len(self._text)

    @property
    def backlog(self) -> int:
        """Bytes that the server does not have yet."""
        with self._lock:
            return len(self._text) + len(self._late)

    def chunk(self, limit: int = CHUNK_BYTES) -> LogChunk | None:
        """The next text to send, at most *limit* bytes; the same again until it is accepted."""
        with self._lock:
            if self._late and self._rate.take(len(self._late)):
                self._take_late()
            if not self._text:
                return None
            self._in_flight = _boundary(self._text, limit) or _character_length(self._text)
            text = bytes(self._text[: self._in_flight]).decode("utf-8", "replace")
            return LogChunk(self.name, self._base, text)

    def accepted(self, offset: int) -> None:
        """The server expects *offset* next. What it lost (a restored database) cannot be sent again and is told."""
        with self._lock:
            self._in_flight = 0
            if offset < self._base:
                self._text[:0] = "… earlier lines were lost by the server …\n".encode()
                self._base = offset
                self._marks = []
            else:
                passed = min(offset - self._base, len(self._text))
                if self._replays:
                    self._skip += offset - self._base - passed
                del self._text[:passed]
                self._base = offset
                settled = [mark for mark in self._marks if mark.offset <= offset]
                self._marks = settled[-1:] + [mark for mark in self._marks if mark.offset > offset]

    def refused(self, size: int) -> None:
        """Forget the next chunk, which the server refuses for what it is."""
        with self._lock:
            del self._text[:size]
            self._in_flight = 0

    def mark(self) -> Mark | None:
        """The newest place that the server has confirmed, to go on from after a restart."""
        with self._lock:
            return self._marks[0] if self._marks and self._marks[0].offset <= self._base else None


def _dropped_line(size: int) -> bytes:
    return f"\n… {size} bytes dropped …\n".encode()


def _boundary(data: bytearray, at: int) -> int:
    """The last character border in *data* at or before *at*."""
    at = max(0, min(at, len(data)))
    while 0 < at < len(data) and data[at] & 0xC0 == 0x80:
        at -= 1
    return at


def _character_length(data: bytearray) -> int:
    size = 1
    while size < len(data) and data[size] & 0xC0 == 0x80:
        size += 1
    return size
