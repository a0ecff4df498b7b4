"""For how long the control plane has not known a lease of ours: a restored database, or another installation's app."""

from __future__ import annotations

from gpu_worker.journal import JobRecord, Journal

NOTE_SECONDS = 60.0  # how much of the time a crash of the worker may cost


class UnknownLease:
    """The time is counted by what the control plane says in its answers, and goes on over restarts of the worker."""

    def __init__(self, record: JobRecord, journal: Journal) -> None:
        self._record, self._journal = record, journal
        self._told_at: float | None = None
        self._noted = record.unknown_seconds

    @property
    def now(self) -> bool:
        """Whether the newest answer did not know the lease."""
        return self._told_at is not None

    @property
    def seconds(self) -> float:
        return self._record.unknown_seconds

    def told(self, now: float) -> None:
        """An answer at *now* (monotonic) did not know the lease."""
        if self._told_at is not None:
            self._record.unknown_seconds += now - self._told_at
        self._told_at = now

    def known(self) -> None:
        """An answer knew it."""
        self._told_at, self._record.unknown_seconds = None, 0.0

    def note(self) -> None:
        """Write the time down: a restart of the worker must not begin anew."""
        if abs(self._record.unknown_seconds - self._noted) >= NOTE_SECONDS:
            self._noted = self._record.unknown_seconds
            self._journal.save(self._record, durable=False)
