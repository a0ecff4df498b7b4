"""Log text of leases: appended at an offset, read from an offset, bounded by keeping head and tail.

A stream's text may have a hole where its middle was dropped; the hole is told to the reader as a line. Offsets count
the UTF-8 bytes that the worker sent, so they stay true however much was dropped.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db.models import Max, Min

from jobs.models import JobEvent, Lease, LogChunk

STREAMS = tuple(LogChunk.Stream.values)
# PostgreSQL cannot store NUL; SUBSTITUTE has the same length and shows as nothing.
SUBSTITUTE = "\x1a"
ENDS = "log_ends"  # among the facts of the event by which an app ended: how long each stream was then


@dataclass(frozen=True)
class Piece:
    """Text to show, and the offset to go on from."""

    text: str
    next_offset: int


def append(lease: Lease, stream: str, *, offset: int, text: str) -> int:
    """Append text at `offset`; return the next expected offset.

    What was stored before is skipped; text beyond a hole is refused by changing nothing (the worker learns the
    offset and sends again). The caller holds the job's lock.
    """
    expected = next_offset(lease, stream)
    raw = text.encode("utf-8", "replace")
    if offset > expected or offset + len(raw) <= expected:
        return expected
    fresh = raw[expected - offset :].decode("utf-8", "replace").replace("\x00", SUBSTITUTE)
    end = offset + len(raw)
    LogChunk.objects.create(lease=lease, stream=stream, offset=expected, end=end, text=fresh)
    _drop_middle(lease, stream, end)
    return end


def next_offset(lease: Lease, stream: str) -> int:
    """Where the stream goes on."""
    end = LogChunk.objects.filter(lease=lease, stream=stream).aggregate(end=Max("end"))["end"]
    return int(end or 0)


def next_offsets(lease: Lease) -> dict[str, int]:
    """Where each stream that has text goes on."""
    return next_offsets_of([lease.pk]).get(lease.pk, {})


def next_offsets_of(lease_ids: Iterable[uuid.UUID]) -> dict[uuid.UUID, dict[str, int]]:
    """The same for many leases. One query."""
    ends = LogChunk.objects.filter(lease__in=list(lease_ids)).values_list("lease_id", "stream").annotate(Max("end"))
    offsets: dict[uuid.UUID, dict[str, int]] = {}
    for lease_id, stream, end in ends:
        offsets.setdefault(lease_id, {})[stream] = end
    return offsets


def ends_told(lease: Lease) -> dict[str, int]:
    """Where each stream of a lease ends, as its worker told with the app's end; empty where it told none."""
    facts = JobEvent.objects.filter(lease=lease, facts__has_key=ENDS).values_list("facts", flat=True).last()
    return {stream: int(end) for stream, end in facts[ENDS].items()} if facts else {}


def is_short(offsets: Mapping[str, int], ends: Mapping[str, int]) -> bool:
    """Whether less of any stream has arrived than its worker told."""
    return any(offsets.get(stream, 0) < end for stream, end in ends.items())


def lacks_its_end(lease: Lease, stream: str) -> bool:
    """Whether the end of this stream never arrived. No query for a lease whose logs are whole."""
    return lease.log_incomplete and next_offset(lease, stream) < ends_told(lease).get(stream, 0)


def read(lease: Lease, stream: str, *, after: int = 0, limit_bytes: int = 256 * 1024) -> Piece:
    """About `limit_bytes` of text from byte `after` on, ending with a whole chunk. Holes are told in a line."""
    text: list[str] = []
    position = after
    size = 0
    for chunk in _chunks(lease, stream, after=after):
        if chunk.offset > position:
            text.append(f"\n… {chunk.offset - position:,} bytes dropped …\n")
        skip = max(position - chunk.offset, 0)
        raw = chunk.text.encode("utf-8")[skip:]
        text.append(raw.decode("utf-8", "ignore"))
        position = chunk.end
        size += len(raw)
        if size >= limit_bytes:
            break
    return Piece("".join(text), position)


def tail_offset(lease: Lease, stream: str, *, limit_bytes: int) -> int:
    """The offset of the chunk from which at most about `limit_bytes` remain."""
    end = next_offset(lease, stream)
    first = LogChunk.objects.filter(lease=lease, stream=stream, end__gt=end - limit_bytes).aggregate(o=Min("offset"))
    return int(first["o"] or 0)


def _chunks(lease: Lease, stream: str, *, after: int) -> Iterator[LogChunk]:
    rows = LogChunk.objects.filter(lease=lease, stream=stream, end__gt=after).order_by("offset")
    return rows.iterator(chunk_size=64)


def _drop_middle(lease: Lease, stream: str, end: int) -> None:
    """Keep the first and the last half of the cap; what lies whole between them goes."""
    half = settings.OPENFACE_LOG_STREAM_MAX_BYTES // 2
    if end > 2 * half:
        LogChunk.objects.filter(lease=lease, stream=stream, offset__gte=half, end__lte=end - half).delete()
