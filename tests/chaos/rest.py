"""What must be true when every fault is over and everybody has acted on what he was told: the world at rest.

`settle` ends the faults and lets machines, people's patience and the keeper go on until nothing changes any more.
`check_at_rest` then compares the database with the machines. `check_empty` stops everything and looks for leftovers.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from jobs import rescue
from jobs.models import Job, Requirement
from jobs.states import FINAL, JobState
from jobs.waiting import why_waiting
from tests.chaos.fleet import MACHINES
from tests.chaos.simulated_worker import SimulatedWorker, Task
from tests.chaos.truths import Picture
from tests.chaos.wire import Loss
from tests.chaos.world import World
from workers.models import GOOD_REPORTS

# Longer than a lease, a silence and two settled beats, so that nothing is left that only time would bring.
ROUND_SECONDS = 130.0
ROUNDS = 10  # more than any chain of consequences needs; a world that still moves then never rests
STEPS_OF_A_JOB = 12


def settle(world: World, *, once_more: bool = True) -> Picture:
    """End all faults and go on until nothing changes. Raises AssertionError where it never rests.

    `once_more`: a world that looks at rest must still look so after another round. Without it, the look is enough.
    """
    _end_the_faults(world)
    picture = world.watch()
    for _ in range(ROUNDS):
        before = _fingerprint(world, picture)
        _round(world, picture)
        picture = world.watch()
        if _fingerprint(world, picture) == before or (not once_more and _looks_at_rest(world, picture)):
            return picture
    raise AssertionError("the world never comes to rest")


def _looks_at_rest(world: World, picture: Picture) -> bool:
    try:
        check_at_rest(world, picture)
    except AssertionError:
        return False
    return True


def _end_the_faults(world: World) -> None:
    world.switch_remote_workers(on=True)
    for ghost in world.ghosts:  # an operator finds the copied machine and takes it away
        ghost.kill()
        ghost.containers.clear()
    world.ghosts.clear()
    for number, worker in enumerate(world.workers):
        worker.reachable, worker.paused = True, None
        for gpu in worker.gpus:
            gpu.foreign_mib, gpu.healthy, gpu.listed = 0, True, True
        world.gateway(number, answers=True)
        worker.engine(answers=True)
        worker.start()


def _round(world: World, picture: Picture) -> None:
    """Much time passes; everybody speaks, does what he was told and all he can, and asks for work."""
    with world.quiet():
        world.shift(ROUND_SECONDS)
        world.stamp()
        for number, worker in enumerate(world.workers):
            world.speak(worker, picture)
            if _is_asked_for_what_it_has_not(worker, picture):
                worker.beat()
            if worker.superseded:  # whoever runs it sees that it ended, and starts it again
                worker.start()
                worker.beat()
            if worker.invalid:  # a restored database has its old credential: the operator sees it
                world.replace_credential(number)
                worker.beat()
            for _ in range(GOOD_REPORTS if worker.cards_failed else 0):
                worker.beat()
            worker.cards_failed = False
    for worker in world.workers:
        for task in worker.tasks():
            finish_step(world, worker, task)
    for worker in world.workers:
        while world.anything_to_claim() and world.claim(worker):
            pass
        for task in worker.tasks():
            finish_step(world, worker, task)
    picture = world.watch()
    for worker in world.workers:
        if _is_asked_for_what_it_has_not(worker, picture):
            worker.beat()
    rescue.sweep()


def _is_asked_for_what_it_has_not(worker: SimulatedWorker, picture: Picture) -> bool:
    """Whether a lease of this machine counts that it does not list: the second heartbeat in a row ends it."""
    me, has = str(worker.wire.worker_id), {str(lease) for lease in (*worker.journal, *worker.containers)}
    return any(lease["worker"] == me and not lease["cleared"] and lease["id"] not in has for lease in picture.leases)


def finish_step(world: World, worker: SimulatedWorker, task: Task) -> None:
    """Bring a job as far as it gets: a service to running, a batch to its end. It tells what it did in one call, as
    after an outage, and goes on with the answer.
    """
    for _ in range(STEPS_OF_A_JOB):
        before = _standing(worker, task)
        container = worker.containers.get(task.lease)
        if task.phase == "running" and task.mode == "batch" and container is not None and container.running:
            worker.app_ends(task.lease, 0)
        worker.work(task, loss=Loss.REQUEST)
        if before == _standing(worker, task):
            worker.send(task)
            if before == _standing(worker, task):
                return


def _standing(worker: SimulatedWorker, task: Task) -> object:
    return task.phase, task.next_seq, len(task.pending), task.wish, task.lease in worker.journal


def _fingerprint(world: World, picture: Picture) -> Any:
    return (
        [(job["id"], job["state"], job["blocked_by"]) for job in picture.jobs.values()],
        [(lease["id"], lease["released"], lease["cleared"]) for lease in picture.leases],
        [
            (worker.name, sorted(map(str, worker.containers)), sorted(map(str, worker.journal)))
            for worker in world.workers
        ],
    )


def check_at_rest(world: World, picture: Picture) -> None:
    """Every job is over, runs, waits for a true reason, or is gone with its machine."""
    containers = _containers(world)
    unreleased = picture.unreleased
    for job in picture.jobs.values():
        state, name = JobState(job["state"]), f"job {job['id']} ({job['state']})"
        mine = containers.get(job["id"], [])
        assert len(mine) <= 1, f"{name}: {len(mine)} containers"
        if state in FINAL:
            assert not mine, f"{name}: its container still runs"
        elif state is JobState.RUNNING:
            lease = unreleased[job["id"]][0]
            assert mine == [lease["id"]], f"{name}: no container of its lease runs: {mine}"
        elif state is JobState.QUEUED:
            _check_waits(world, picture, job, name)
        elif state is JobState.UNAVAILABLE:
            assert _gone(world, job, picture), f"{name}: its machine is there"
        else:
            raise AssertionError(f"{name}: it is neither over nor waiting, and nothing moves")
    _check_reservations(world, picture)


def _containers(world: World) -> dict[str, list[str]]:
    """The leases whose containers exist, by job; those on hold are shown to an operator and not counted."""
    found: dict[str, list[str]] = defaultdict(list)
    for worker in world.workers:
        for lease, container in worker.containers.items():
            task = worker.journal.get(lease)
            if task is None or not task.on_hold:
                found[str(container.job)].append(str(lease))
    return found


def _gone(world: World, job: dict[str, Any], picture: Picture) -> bool:
    """Whether the machine of a job will not come back: revoked, or it left after a revocation that was undone."""
    leases = [lease for lease in picture.leases if lease["job"] == job["id"]]
    last = leases[-1]["worker"]
    return any(str(worker.wire.worker_id) == last and worker.wiped for worker in world.workers) or any(
        lease["released"] for lease in leases[-1:]
    )


def _check_waits(world: World, picture: Picture, job: dict[str, Any], name: str) -> None:
    """A waiting job says why, the reason is true, and no idle machine could take it."""
    waiting = why_waiting(Job.objects.select_related("requirement").get(pk=job["id"]))
    assert waiting is not None, f"{name}: nobody knows why it waits"
    if job["blocked_by"] is not None:
        assert waiting.code == "predecessor_stopping", f"{name}: {waiting}"
        return
    assert waiting.code != "about_to_start", f"{name}: {waiting.sentence} And nobody did."
    assert not any(reason.code == "would_fit" for reason in waiting.workers), f"{name}: {waiting}"
    needs = Requirement.objects.get(pk=job["requirement"])
    named = needs.worker_id
    for number, worker in enumerate(world.workers):
        row = picture.workers[str(worker.wire.worker_id)]
        if not _idle(worker) or row["revoked"] or row["scheduling"] != "open":
            continue
        if named is not None and named != worker.wire.worker_id:
            continue
        machine = MACHINES[number]
        could = machine.gpus >= needs.gpu_count if needs.kind == "gpu" else machine.local
        assert not (could or (named is not None and needs.kind == "cpu")), (
            f"{name} waits ({waiting.code}: {waiting.sentence}) while {worker.name} has nothing to do"
        )


def _idle(worker: SimulatedWorker) -> bool:
    return worker.registered and not worker.containers and not worker.journal


def _check_reservations(world: World, picture: Picture) -> None:
    """What is reserved is what runs, on every card of every machine that is there."""
    here = {str(worker.wire.worker_id): worker for worker in world.workers if not worker.wiped}
    reserved = {
        (row["lease"], row["gpu"]) for row in picture.reservations if not row["cleared"] and row["worker"] in here
    }
    known = {lease["id"] for lease in picture.leases}
    runs = {
        (str(lease), gpu)
        for worker in here.values()
        for lease, container in worker.containers.items()
        for gpu in container.gpus
        if str(lease) in known
    }
    assert reserved == runs, f"reserved and nothing runs: {reserved - runs}; runs unreserved: {runs - reserved}"


def check_empty(world: World, picture: Picture) -> None:
    """Stop every Space: then nothing is left of any, but what an operator must decide about."""
    active = {job["space"] for job in picture.jobs.values() if JobState(job["state"]) not in FINAL}
    for number, space in enumerate(world.fleet.spaces):
        if space.pk in active:
            world.stop(number)
    if active:
        for worker in world.workers:
            world.speak(worker, picture)
            for task in worker.tasks():
                finish_step(world, worker, task)
        picture = world.watch()
    for worker in world.workers:
        world.speak(worker, picture)
    rescue.sweep()
    picture = world.watch()
    for job in picture.jobs.values():
        assert JobState(job["state"]) in FINAL, f"job {job['id']} ({job['state']}): it was stopped and is not over"
    here = {str(worker.wire.worker_id): worker for worker in world.workers if not worker.wiped}
    left = [lease["id"] for lease in picture.leases if not lease["cleared"] and lease["worker"] in here]
    assert not left, f"leases that nobody clears: {left}"
    assert not _containers(world), f"containers that nobody removes: {_containers(world)}"
    for worker in world.workers:
        held = {str(lease) for lease, task in worker.journal.items() if task.on_hold}
        shown = set(picture.workers[str(worker.wire.worker_id)]["unknown"])
        assert worker.wiped or held == shown, f"{worker.name} keeps {held} and {shown} are shown"
