"""What a claim takes over HTTP, however long the line is, and how many a web process answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field

from benchmarks.claimant import Claimant
from benchmarks.measurement import Measurement, at_most, cpu_seconds, percentile
from benchmarks.queues import Queues
from tests.e2e.world import World

LENGTHS = (10, 1_000, 20_000, 100_000)
EVERY = 100  # one job in so many fits; of ten, the tenth does
ROUNDS, WARM_UP = 60, 10
RATIO_GOAL = 1.5
QUEUED = 5_000
CLAIMS = 400  # of each fleet


def measure_latency(world: World) -> list[Measurement]:
    """Lines of all lengths side by side, each with a web process of its own, asked in turn."""
    queues = Queues(world)
    milliseconds: dict[int, list[float]] = {length: [] for length in LENGTHS}
    cpu: dict[int, float] = dict.fromkeys(LENGTHS, 0.0)
    with ExitStack() as open_queues:
        found = [
            open_queues.enter_context(queues.queue(length, fitting="gpu", every=min(EVERY, length)))
            for length in LENGTHS
        ]
        # Enrolled when all are there: a connection that idles meanwhile is closed.
        lines = {length: (queue, queue.worker()) for length, queue in zip(LENGTHS, found, strict=True)}
        for number in range(WARM_UP + ROUNDS):
            # In turn, so that whatever else the machine does meets all of them; another one first each time.
            for length in LENGTHS[number % len(LENGTHS) :] + LENGTHS[: number % len(LENGTHS)]:
                queue, worker = lines[length]
                before = cpu_seconds(queue.pid)
                job, took = worker.claim()
                cpu[length] += cpu_seconds(queue.pid) - before
                assert job is not None, f"nothing was found in a line of {length}"
                worker.give_back(job)
                if number >= WARM_UP:
                    milliseconds[length].append(took)
    median = {length: percentile(taken, 0.5) for length, taken in milliseconds.items()}
    ratio = median[LENGTHS[-1]] / median[LENGTHS[0]]
    claims = len(LENGTHS) * (WARM_UP + ROUNDS)
    return [
        *(Measurement(f"claim_ms_at_{length}", round(median[length], 2), "ms") for length in LENGTHS),
        at_most("claim_latency_ratio_100k_vs_10", ratio, "times", RATIO_GOAL),
        Measurement("claim_ms_p95_at_100000", round(percentile(milliseconds[LENGTHS[-1]], 0.95), 2), "ms"),
        Measurement("claim_web_cpu_ms_mean", round(sum(cpu.values()) / claims * 1000, 2), "CPU ms"),
    ]


@dataclass
class _Race:
    """What the workers of one fleet were answered: when each call began and ended, and whether with a job."""

    calls: list[tuple[float, float, bool]] = field(default_factory=list)

    def per_second(self) -> float:
        ended = sorted(end for _, end, got in self.calls if got)
        began = min(begin for begin, _, _ in self.calls)
        return len(ended) / (ended[-1] - began)

    def empty_too_early(self) -> int:
        """Empty answers although a job was waiting, unlocked: one that a call took which began only afterwards."""
        last = max((begin for begin, _, got in self.calls if got), default=0.0)
        return sum(1 for _, end, got in self.calls if not got and end < last)


def measure_rate(world: World) -> list[Measurement]:
    """Fleets of 8 and of 32 workers that ask one web process for all they can get."""
    with Queues(world).queue(QUEUED, fitting="cpu", every=4) as queue:
        fleet = [queue.worker(number, cpu=QUEUED) for number in range(32)]
        small = _race(fleet[:8], CLAIMS)
        large = _race(fleet, CLAIMS)
        # To the end of the line, where jobs become few and their rows are locked by others.
        rest = _race(fleet, QUEUED)
    empty = sum(race.empty_too_early() for race in (small, large, rest))
    return [
        Measurement("claims_per_s_8_workers_5000_queued", round(small.per_second(), 1), "1/s"),
        Measurement("claims_per_s_32_workers", round(large.per_second(), 1), "1/s"),
        at_most("empty_claims_while_work_waits", empty, "", 0),
    ]


def _race(fleet: Sequence[Claimant], most: int) -> _Race:
    """Let all workers claim one after the other until there is nothing, or so many claims are made."""
    race, left, start = _Race(), iter(range(most)), threading.Barrier(len(fleet))
    for worker in fleet:
        worker.hang_up()  # a server closes what idled during another race

    def claim_on(worker: Claimant) -> None:
        start.wait()
        while next(left, None) is not None:
            began = time.perf_counter()
            job, _ = worker.claim()
            race.calls.append((began, time.perf_counter(), job is not None))
            if job is None:
                return

    with ThreadPoolExecutor(len(fleet)) as pool:
        for done in [pool.submit(claim_on, worker) for worker in fleet]:
            done.result()
    return race
