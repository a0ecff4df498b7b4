"""Bring one job's events and logs to the server: events in order and at once, logs soon, neither lost on a restart.

One thread per job. Events are journalled before they are sent; a batch carries events and some log text, and events
never wait for logs.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from gpu_worker.client import ControlPlane
from gpu_worker.commands import Cancel
from gpu_worker.errors import CallFailed, CredentialInvalid, EventGap, Final, LeaseStale, Refused, WireError
from gpu_worker.journal import JobRecord, Journal
from gpu_worker.log_shipping import CHUNK_BYTES, FLUSH_BYTES, FLUSH_SECONDS, LogStream, RateLimit
from gpu_worker.protocol import STREAMS, Event, LogChunk, Receipt

logger = logging.getLogger(__name__)

FIRST_BACKOFF_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 15.0
EVENTS_PER_BATCH = 200
FINAL_KINDS = frozenset({"exited", "failed", "declined", "stopped"})
LOGS_FIRST_SECONDS = 10.0


class JobReport:
    """The way from one runner to the server.

    *on_receipt* hears each answer, *on_stale* that the lease is not ours any more, *on_final* a revocation or a newer
    session; they are called from this object's thread and must not block.
    """

    def __init__(
        self,
        record: JobRecord,
        client: ControlPlane,
        journal: Journal,
        *,
        secrets: Iterable[str],
        on_receipt: Callable[[Receipt], None],
        on_stale: Callable[[], None],
        on_final: Callable[[Final], None],
    ) -> None:
        self._record, self._client, self._journal = record, client, journal
        self._on_receipt, self._on_stale, self._on_final = on_receipt, on_stale, on_final
        rate, known = RateLimit(), tuple(secrets)
        self._streams = {
            name: LogStream(name, known, start=record.marks.get(name), replays=name == "run", rate=rate)
            for name in STREAMS
        }
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._stale = False
        self._confirmed_through = 0
        self._confirmed_at = 0.0
        self._rewind: int | None = None
        self._tried_at = 0.0
        self._reachable = threading.Event()
        self._final_at = 0.0
        self._delivered = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"report-{record.facts.lease[:8]}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stream(self, name: str) -> LogStream:
        return self._streams[name]

    def event(self, kind: str, **facts: Any) -> None:
        """Journal one event and send it soon."""
        with self._record.lock:
            self._record.pending.append(Event(self._record.next_seq, kind, facts))
            self._record.next_seq += 1
            self._record.last_event = kind
            if kind in FINAL_KINDS:
                self._final_at = time.monotonic()
            self._journal.save(self._record)
        self._wake.set()

    def exited(self, *, code: int | None, oom_killed: bool, detail: str | None = None) -> None:
        """The end of the app, with the length of each log so that the server knows when it has them whole."""
        ends = {name: stream.length for name, stream in self._streams.items()}
        self.event("exited", code=code, oom_killed=oom_killed, log_ends=ends, detail=detail)

    def resume(self, *, next_seq: int | None, log_offsets: Mapping[str, int] | None) -> None:
        """After a restart: go on where the server says it is."""
        with self._record.lock:
            if next_seq is not None:
                self._record.pending = [event for event in self._record.pending if event.seq >= next_seq]
                self._align(next_seq)
            self._journal.save(self._record)
        for name, offset in (log_offsets or {}).items():
            if name in self._streams:
                self._streams[name].accepted(offset)
        self._wake.set()

    def compare(self, *, next_seq: int, asked_at: float) -> None:
        """A heartbeat that was sent at *asked_at* (monotonic) says which event the server expects.

        One that it had already taken means that an older database was restored: it is told anew where the job is,
        even if nothing more would happen to it for days. And a server that answers heartbeats again may have what
        waits here at once, not only after the next pause.
        """
        if asked_at > self._tried_at:
            self._reachable.set()
        if next_seq <= self._confirmed_through and asked_at > self._confirmed_at:
            self._rewind = next_seq
            self._wake.set()

    def delivered(self) -> bool:
        """Whether the server has everything there is, or has no right to it any more."""
        if self._stale:
            return True
        with self._record.lock:
            return not self._record.pending and not any(stream.backlog for stream in self._streams.values())

    def wait_delivered(self, *, cancel: Cancel, timeout: float | None = None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout
        self._wake.set()
        with self._delivered:
            while not self.delivered():
                if cancel.is_set() or (deadline is not None and time.monotonic() >= deadline):
                    return False
                self._delivered.wait(0.1)
        return True

    def close(self) -> None:
        self._closed.set()
        self._reachable.set()
        self._wake.set()

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff = 0.0
        while not self._closed.is_set():
            self._wait(backoff)
            if self._closed.is_set() or self._stale:
                return
            try:
                backoff = self._send_all(backoff)
            except Exception:
                # the outermost net of this loop: a defect must not silence a job for ever
                logger.exception("report failed", extra={"action": "report_failed", "lease": self._record.facts.lease})
                backoff = LONGEST_BACKOFF_SECONDS

    def _wait(self, backoff: float) -> None:
        if backoff:
            self._reachable.wait(backoff * random.uniform(0.5, 1.0))
        elif not any(stream.backlog >= FLUSH_BYTES for stream in self._streams.values()):
            self._wake.wait(FLUSH_SECONDS)
        self._wake.clear()

    def _send_all(self, backoff: float) -> float:
        """Send what is there; the seconds to wait before the next try (0: at ease)."""
        if self._rewind is not None:
            expected, self._rewind = self._rewind, None
            self._confirmed_through = expected - 1
            self._close_gap(expected)
        self._tried_at = time.monotonic()
        self._reachable.clear()
        try:
            while self._send_batch():
                pass
            return 0.0
        except LeaseStale:
            self._stale = True
            self._on_stale()
        except EventGap as gap:
            self._close_gap(gap.expected_seq)
            return FIRST_BACKOFF_SECONDS
        except Final as final:
            self._on_final(final)
            return LONGEST_BACKOFF_SECONDS
        except CredentialInvalid:
            return LONGEST_BACKOFF_SECONDS
        except (CallFailed, WireError) as problem:
            logger.warning(
                "report not delivered",
                extra={"action": "report_delayed", "lease": self._record.facts.lease, "problem": str(problem)},
            )
            return min(max(backoff * 2, FIRST_BACKOFF_SECONDS), LONGEST_BACKOFF_SECONDS)
        finally:
            with self._delivered:
                self._delivered.notify_all()
        return 0.0

    def _send_batch(self) -> bool:
        """One call; whether there was something to send."""
        logs = self._next_logs()
        events = self._next_events(logs)
        if not events and not logs:
            return False
        try:
            self._deliver(events, logs)
        except (LeaseStale, EventGap, CredentialInvalid):
            raise
        except Refused as refusal:
            if refusal.status not in (400, 413, 422):
                raise
            self._without_the_refused(events, logs, refusal)
        return True

    def _next_events(self, logs: list[LogChunk]) -> list[Event]:
        """Events in order. The one that ends the job waits (not for ever) for the log: after it the lease is over."""
        with self._record.lock:
            events = self._record.pending[:EVENTS_PER_BATCH]
        left = sum(stream.backlog for stream in self._streams.values()) - sum(len(one.text.encode()) for one in logs)
        if (
            events
            and events[-1].kind in FINAL_KINDS
            and left > 0
            and time.monotonic() < self._final_at + LOGS_FIRST_SECONDS
        ):
            return events[:-1]
        return events

    def _next_logs(self) -> list[LogChunk]:
        room, chunks = CHUNK_BYTES, []
        for name in ("system", "build", "run"):
            chunk = self._streams[name].chunk(room) if room > 0 else None
            if chunk is not None:
                chunks.append(chunk)
                room -= len(chunk.text.encode())
        return chunks

    def _deliver(self, events: list[Event], logs: list[LogChunk]) -> None:
        facts = self._record.facts
        receipt = self._client.report(job=facts.job, lease=facts.lease, events=events, logs=logs)
        for chunk in logs:
            offset = receipt.log_offsets.get(chunk.stream)
            if offset is not None:
                self._streams[chunk.stream].accepted(offset)
        if receipt.accepted_through < self._confirmed_through:  # a restored database, seen by a batch of logs first
            self._rewind = receipt.accepted_through + 1
        self._confirmed_through, self._confirmed_at = receipt.accepted_through, time.monotonic()
        with self._record.lock:
            self._record.pending = [event for event in self._record.pending if event.seq > receipt.accepted_through]
            for name, stream in self._streams.items():
                mark = stream.mark()
                if mark is not None:
                    self._record.marks[name] = mark
            self._journal.save(self._record, durable=bool(events))
        self._on_receipt(receipt)

    def _without_the_refused(self, events: list[Event], logs: list[LogChunk], refusal: Refused) -> None:
        """The server takes this batch never. Logs are what may be lost; an event alone that it refuses is a defect."""
        logger.error(
            "report refused",
            extra={
                "action": "report_refused",
                "lease": self._record.facts.lease,
                "code": refusal.code,
                "problem": refusal.detail,
            },
        )
        for chunk in logs:
            self._streams[chunk.stream].refused(len(chunk.text.encode()))
        if not events:
            return
        if logs:
            self._deliver(events, [])
        else:
            with self._record.lock:
                self._record.pending = self._record.pending[len(events) :]

    # -- event numbers -----------------------------------------------------------------------------------------

    def _close_gap(self, expected: int) -> None:
        """The server's count and ours differ: forget what it has, or tell the state anew where it has less."""
        with self._record.lock:
            self._record.pending = [event for event in self._record.pending if event.seq >= expected]
            self._align(expected)
            self._journal.save(self._record)

    def _align(self, expected: int) -> None:
        """Make the pending events go on at *expected* without a hole."""
        record = self._record
        first = record.pending[0].seq if record.pending else record.next_seq
        if first > expected and record.phase in ("leased", "building", "starting", "running", "stopping"):
            record.pending.insert(0, Event(expected, "snapshot", {"state": record.phase}))
        record.pending = [
            Event(expected + place, event.kind, event.facts) for place, event in enumerate(record.pending)
        ]
        record.next_seq = expected + len(record.pending)
