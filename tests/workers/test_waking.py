"""New work wakes the worker that it fits best; others hear of it if it still waits a quarter of a second later."""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import ExitStack
from typing import Any

import pytest
from channels.db import database_sync_to_async

from jobs import notices, offers, patience
from jobs.lifecycle import request_stop
from jobs.models import Job
from jobs.notices import Mailbox
from jobs.scheduling import GpuOffer, Held, RequirementSpec, WorkerOffer
from tests.factories import JobFactory, RequirementFactory, ago
from tests.workers.conftest import GPU, WireWorker
from tests.workers.streams import SECONDS, run, stream_of
from workers import standing, waking
from workers.models import Worker
from workers.waking import WAKE, WAKER, Plan, Waker, Wanted, rank

WORK = "event: work\ndata: {}\n\n"
BUSY = (Held(uuid.uuid4(), 4_096, exclusive=False),)


def gpu_worker(name: str, *sizes: int, **facts: Any) -> WorkerOffer:
    gpus = tuple(
        GpuOffer(
            gpu_id=place,
            uuid=f"{name}-{place}",
            index=place,
            model="card",
            total_mib=mib,
            free_mib=mib,
            reserved=facts.get("reserved", ()),
        )
        for place, mib in enumerate(sizes)
    )
    return WorkerOffer(uuid.uuid4(), name, gpus=gpus, free_gpu_slots=facts.get("slots", 4), gpu_slots=4)


def wanted(seq: int = 1, **needs: Any) -> Wanted:
    facts: dict[str, Any] = {"kind": "gpu", "gpu_count": 1} | needs
    return Wanted(uuid.uuid4(), seq, RequirementSpec(**facts), "batch")


def names(fleet: list[WorkerOffer], ids: frozenset[uuid.UUID]) -> set[str]:
    return {offer.name for offer in fleet if offer.worker_id in ids}


def first_of(plan: Plan, fleet: list[WorkerOffer]) -> set[str]:
    return names(fleet, plan.first)


def test_the_smallest_card_that_does_is_woken_first() -> None:
    fleet = [gpu_worker("large", 24_564), gpu_worker("small", 12_287), gpu_worker("tiny", 8_188)]
    job = wanted(vram_mib=11_444)

    plan = rank([job], fleet, [])

    assert first_of(plan, fleet) == {"small"}
    assert names(fleet, plan.later[job.job_id]) == {"small", "large"}


def test_an_idle_worker_is_woken_before_one_that_runs_something() -> None:
    fleet = [gpu_worker("busy", 12_287, reserved=BUSY), gpu_worker("idle", 24_564)]

    assert first_of(rank([wanted(vram_mib=4_000)], fleet, []), fleet) == {"idle"}


def test_a_cpu_job_wakes_the_local_worker_with_most_room() -> None:
    fleet = [
        WorkerOffer(uuid.uuid4(), "full", local=True, free_cpu_slots=0, cpu_slots=2),
        WorkerOffer(uuid.uuid4(), "some", local=True, free_cpu_slots=1, cpu_slots=2),
        WorkerOffer(uuid.uuid4(), "empty", local=True, free_cpu_slots=4, cpu_slots=4),
    ]

    assert first_of(rank([wanted(kind="cpu", gpu_count=0)], fleet, []), fleet) == {"empty"}


def test_nobody_is_woken_for_what_nobody_can_take() -> None:
    assert rank([wanted(vram_mib=80_000)], [gpu_worker("small", 12_287)], []) == Plan()


def test_two_jobs_wake_two_workers() -> None:
    fleet = [gpu_worker("one", 24_564), gpu_worker("two", 24_564), gpu_worker("three", 24_564)]

    assert first_of(rank([wanted(1), wanted(2)], fleet, []), fleet) == {"one", "three"}  # by name


def test_a_worker_that_keeps_its_gpus_for_an_older_job_is_not_woken_for_a_younger_one() -> None:
    keeping = gpu_worker("keeping", 24_564, 24_564)
    keeping = WorkerOffer(
        keeping.worker_id,
        keeping.name,
        free_gpu_slots=4,
        gpu_slots=4,
        gpus=(keeping.gpus[0], *gpu_worker("x", 24_564, reserved=BUSY).gpus),
    )
    other = gpu_worker("other", 24_564)
    older = patience.Head(
        requirement=RequirementFactory.build(),
        spec=RequirementSpec("gpu", gpu_count=2),
        job_id=uuid.uuid4(),
        seq=1,
        mode="batch",
        owner="o",
        repo="r",
        queued_at=ago(700),
        waited_seconds=700,
    )

    assert first_of(rank([wanted(2)], [keeping, other], [older]), [keeping, other]) == {"other"}


# --- over real streams and notifications ----------------------------------------------------------------------------

database = pytest.mark.django_db(transaction=True)


@pytest.fixture
def pair(enroll: Any) -> tuple[WireWorker, WireWorker]:
    """A worker with a 3060 and one with a 4090."""
    small = enroll("small", gpus=[GPU | {"uuid": "GPU-3060", "total_vram_mib": 12_287, "free_vram_mib": 12_000}])
    large = enroll("large", gpus=[GPU | {"uuid": "GPU-4090"}])
    Worker.objects.update(gateway_status=Worker.Gateway.OK, gateway_url="http://127.0.0.1:8787")
    return small, large


def new_job() -> Job:
    job = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=11_444))
    notices.publish("work", job=job.pk)
    return job


async def until(condition: Any) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


@database
def test_the_best_fitting_worker_hears_first_and_the_other_one_later(
    pair: tuple[WireWorker, WireWorker], listener: None
) -> None:
    heard: list[str] = []

    async def hear(name: str, stream: Any) -> None:
        assert await stream.next() == WORK
        heard.append(name)

    async def test() -> None:
        async with stream_of(pair[1]) as large, stream_of(pair[0]) as small:
            await large.opened()
            await small.opened()
            await database_sync_to_async(new_job)()
            await asyncio.gather(hear("large", large), hear("small", small))

    run(test)
    assert heard == ["small", "large"]


@database
def test_nobody_else_hears_of_a_job_that_was_taken_meanwhile(
    pair: tuple[WireWorker, WireWorker], listener: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "OTHERS_AFTER_SECONDS", 1.0)  # time enough for the claim, on a busy machine

    async def test() -> None:
        async with stream_of(pair[1]) as large, stream_of(pair[0]) as small:
            await large.opened()
            await small.opened()
            await database_sync_to_async(new_job)()
            assert await small.next() == WORK
            assert (await database_sync_to_async(pair[0].claim)()).status_code == 200
            await until(lambda: not WAKER._due)
            await database_sync_to_async(standing.drain)(pair[1].row_id, actor=None)
            assert await large.next() == 'event: standing\ndata: {"standing": "draining"}\n\n'

    run(test)


@database
def test_a_mistake_in_the_judging_wakes_everybody(
    pair: tuple[WireWorker, WireWorker],
    listener: None,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(worker_ids: object = None) -> None:
        raise RuntimeError("a mistake of ours")

    async def test() -> None:
        async with stream_of(pair[1]) as large, stream_of(pair[0]) as small:
            await large.opened()
            await small.opened()
            monkeypatch.setattr(offers, "offers_for", broken)  # the one place for a fake: a mistake cannot be ordered
            await database_sync_to_async(new_job)()
            assert await large.next() == await small.next() == WORK

    run(test)
    assert "waking all" in caplog.text


@database
def test_two_processes_agree_on_who_is_first_without_talking(
    pair: tuple[WireWorker, WireWorker], listener: None
) -> None:
    """Each has one worker's stream; the one that has only the worse worker's keeps still at first."""
    heard: list[str] = []

    async def hear(name: str, box: Mailbox) -> None:
        notice = await box.get(SECONDS)
        assert notice is not None and notice.kind == WAKE
        heard.append(name)

    async def test() -> None:
        small, large = Mailbox([WAKE]), Mailbox([WAKE])
        with ExitStack() as streams:
            streams.enter_context(Waker().stream(pair[1].row_id, large))
            streams.enter_context(Waker().stream(pair[0].row_id, small))
            await database_sync_to_async(new_job)()
            await asyncio.gather(hear("large", large), hear("small", small))

    run(test)
    assert heard == ["small", "large"]


@database
def test_a_burst_of_jobs_is_judged_to_its_end(
    pair: tuple[WireWorker, WireWorker], listener: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waking, "JUDGED_AT_ONCE", 2)

    def burst() -> None:
        for _ in range(4):  # only the large card does for the last one
            JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=80_000))
        JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1, vram_mib=22_000))
        for job in Job.objects.all():
            notices.publish("work", job=job.pk)

    async def test() -> None:
        async with stream_of(pair[1]) as large:
            await large.opened()
            await database_sync_to_async(burst)()
            assert await large.next() == WORK

    run(test)


@database
@pytest.mark.parametrize("leaves", ["taken elsewhere", "stopped"])
def test_who_kept_gpus_for_a_job_hears_at_once_when_it_has_left_the_line(
    enroll: Any, listener: None, leaves: str
) -> None:
    """Both have one of two GPUs free, and keep it for a job that needs two; the job behind that one needs only one."""
    cards = {name: [GPU | {"uuid": f"GPU-{name}-{n}"} for n in range(2)] for name in ("keeping", "other")}
    keeping, other = (enroll(name, gpus=gpus) for name, gpus in cards.items())
    Worker.objects.update(gateway_status=Worker.Gateway.OK, gateway_url="http://127.0.0.1:8787")
    one, two = (RequirementFactory.create(kind="gpu", gpu_count=count) for count in (1, 2))
    for worker in (keeping, other):
        JobFactory.create(requirement=one)
        claimed = worker.claim().json()
    impatient = JobFactory.create(requirement=two, queued_at=ago(700))
    JobFactory.create(requirement=one)
    assert keeping.claim().status_code == 204, "its free GPU is kept"

    def leave() -> None:
        if leaves == "stopped":
            request_stop(impatient.pk)
            return
        other.events(claimed, [{"seq": 1, "kind": "failed", "reason": "build_failed", "detail": ""}])
        other.heartbeat(holds=[])
        assert other.claim().json()["id"] == str(impatient.pk)

    async def test() -> None:
        async with stream_of(keeping) as stream:
            await stream.opened()
            await database_sync_to_async(leave)()
            assert await stream.next() == WORK
            assert (await database_sync_to_async(keeping.claim)()).status_code == 200

    run(test)


@database
def test_without_streams_there_is_no_thread(pair: tuple[WireWorker, WireWorker], listener: None) -> None:
    async def test() -> None:
        async with stream_of(pair[0]) as stream:
            await stream.opened()
            assert WAKER._thread is not None
        await until(lambda: WAKER._thread is None)

    run(test)
