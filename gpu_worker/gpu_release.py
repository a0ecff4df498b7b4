"""Whether a GPU gets its memory back when the container that used it is gone.

Sometimes it does not: a process of the container waits in the kernel and does not end, or the driver keeps memory that
belongs to no process any more. Who is given that GPU next would run out of memory, so its reservation is kept until
the memory is back. Known is only what was measured while the app ran: where the driver tells nothing of processes
(WSL2, no host pids), or where others' use explains what is missing, nothing is held.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace

from gpu_worker.executor import Found
from gpu_worker.gpu_use import Left, Use, left_on, unlisted_mib
from gpu_worker.protocol import Gpu, GpuUse


class ReleaseWatch:
    """What apps used while they ran, and what is left of those that are gone. Thread-safe.

    Whoever looks at the GPUs asks `awaited` before and tells `see` after; runners wait for what such a look brings, and
    never for the driver itself, which may hang for the very same reason.
    """

    def __init__(self) -> None:
        self._news = threading.Condition()
        self._uses: dict[str, dict[str, Use]] = {}
        self._ending: set[str] = set()
        self._gone: dict[str, Found] = {}
        self._left: dict[str, tuple[Left, ...]] = {}
        self._closed = False

    # -- for whoever looks at the GPUs -----------------------------------------------------------------------------

    def awaited(self) -> tuple[Found, ...]:
        """The apps that are gone and whose memory is waited for: a process in one's container is still its own."""
        with self._news:
            return tuple(self._gone.values())

    def see(self, gpus: Sequence[Gpu], awaited: Sequence[Found]) -> tuple[Gpu, ...]:
        """Take what a look brought that began after *awaited* was asked for.

        Returns the GPUs with what is left of an app counted as that app's own use, which it is.
        """
        with self._news:
            for gpu in gpus:
                self._note(gpu)
                self._note_absent(gpu)
            for one in awaited:
                lease = one.facts.lease
                if lease in self._gone:
                    uses = self._uses.get(lease, {})
                    found = (left_on(gpu, lease, uses[gpu.uuid]) for gpu in gpus if gpu.uuid in uses)
                    self._left[lease] = tuple(left for left in found if left is not None)
            self._news.notify_all()
            return tuple(self._credited(gpu) for gpu in gpus)

    def _note(self, gpu: Gpu) -> None:
        unlisted = unlisted_mib(gpu)
        for use in gpu.ours:
            if use.mib is not None and use.lease not in self._ending:
                self._uses.setdefault(use.lease, {})[gpu.uuid] = Use(use.mib, unlisted)

    def _note_absent(self, gpu: Gpu) -> None:
        listed = {use.lease for use in gpu.ours}
        for lease, uses in self._uses.items():
            if gpu.uuid in uses and lease not in listed and lease not in self._ending:
                use = uses.pop(gpu.uuid)
                if not use.missed:
                    uses[gpu.uuid] = replace(use, missed=True)

    def _credited(self, gpu: Gpu) -> Gpu:
        listed = {use.lease for use in gpu.ours}
        more = [
            GpuUse(lease, one.mib)
            for lease, left in self._left.items()
            for one in left
            if one.uuid == gpu.uuid and lease not in listed
        ]
        return replace(gpu, ours=(*gpu.ours, *more)) if more else gpu

    # -- for runners -----------------------------------------------------------------------------------------------

    def ending(self, lease: str) -> Mapping[str, Use]:
        """The app is about to be stopped, or has ended: what it used by then, by GPU. Nothing later counts."""
        with self._news:
            self._ending.add(lease)
            return dict(self._uses.get(lease, {}))

    def gone(self, app: Found, uses: Mapping[str, Use]) -> None:
        """Nothing of the app should be left now; *uses* is what it used."""
        with self._news:
            lease = app.facts.lease
            self._ending.add(lease)
            self._uses[lease], self._gone[lease] = dict(uses), app
            self._left.pop(lease, None)

    def left_of(self, lease: str, *, timeout: float) -> tuple[Left, ...] | None:
        """What the next look finds of an app that is gone; None: there was none within *timeout* seconds."""
        with self._news:
            self._left.pop(lease, None)
            self._news.wait_for(lambda: self._closed or lease in self._left, timeout)
            return () if self._closed else self._left.get(lease)

    def forget(self, lease: str) -> None:
        """The job is over and done with."""
        with self._news:
            self._ending.discard(lease)
            for known in (self._uses, self._gone, self._left):
                known.pop(lease, None)

    def close(self) -> None:
        """Nobody looks any more; so nothing is left, for all that anybody can tell."""
        with self._news:
            self._closed = True
            self._news.notify_all()
