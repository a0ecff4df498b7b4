"""A small installation in which anything may go wrong: three machines, seven Spaces, people, time, and a database.

What happens here is chosen from outside (`schedules.py`). After each step `watch` checks the truths of `truths.py`, and
each claim is judged against what the schedule knows of the worker.

Time passes by moving the database's stamps into the past; nothing waits.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from dataclasses import replace as replaced
from datetime import timedelta
from typing import Any

from django.apps import apps
from django.conf import settings
from django.db import connection, models, transaction

from jobs import rescue, switch
from jobs.clock import stamp_alive
from jobs.lifecycle import Submission, reclass_queued, request_stop, stop_space, submit
from jobs.models import Job, Requirement, Uptime
from jobs.scheduling import RequirementSpec
from spaces.models import Space
from tests.chaos import truths
from tests.chaos.fleet import MACHINES, NONCE, REVISION, SPACES, Fleet, machines_of, whole_gpus
from tests.chaos.simulated_worker import Gpu, SimulatedWorker, Task
from tests.chaos.truths import History, Picture
from tests.chaos.wire import Claimed, Loss, Wire
from workers import enrollment, standing
from workers.errors import GpuWorkersDisabled, WrongStanding
from workers.models import Gpu as GpuRow
from workers.models import Worker
from workers.reports import Enrollment

# Every schedule begins here, however long the ones before it took.
FRESH = """
UPDATE workers_worker SET last_seen_at = statement_timestamp();
UPDATE jobs_lease SET acquired_at = statement_timestamp() - interval '1 minute',
                      expires_at = statement_timestamp() + interval '80 seconds';
UPDATE jobs_uptime SET alive_at = statement_timestamp(), up_since = statement_timestamp() - interval '1 day'
"""
# Columns that time moves. `alive_at` is stamped by the web processes and moves only while they are away.
CLOCKS: list[tuple[str, list[str]]] = []


def clocks() -> list[tuple[str, list[str]]]:
    """Every timestamp of a job, a lease, a worker and our own uptime."""
    if not CLOCKS:
        for model in (Job, apps.get_model("jobs", "Lease"), Worker, GpuRow, Uptime):
            columns = [str(f.column) for f in model._meta.fields if isinstance(f, models.DateTimeField)]
            CLOCKS.append((model._meta.db_table, [column for column in columns if column != "alive_at"]))
    return CLOCKS


@dataclass
class Snapshot:
    """The database at an earlier moment, and how much time has passed since."""

    name: str
    history: History
    passed_seconds: float = 0.0


@dataclass
class World:
    fleet: Fleet
    workers: list[SimulatedWorker]
    history: History = field(default_factory=History)
    picture: Picture | None = None
    ghosts: list[SimulatedWorker] = field(default_factory=list)  # second machines with a copied credential
    snapshot: Snapshot | None = None
    claims: int = 0
    alone: bool = True  # nobody but the schedule acts: what was seen before an act was so when it began
    restored: bool = False
    closed_gateways: set[int] = field(default_factory=set)
    doubled: list[SimulatedWorker] = field(default_factory=list)  # those whose credential another machine used
    was_revoked: list[SimulatedWorker] = field(default_factory=list)
    _old_reports: list[tuple[SimulatedWorker, Task, Any]] = field(default_factory=list)

    # --- people ------------------------------------------------------------------------------------------------

    def start(self, number: int, *, replace: bool = False, named: int | None = None) -> Job:
        kind, space = SPACES[number], self.fleet.spaces[number]
        requirement = kind.requirement if named is None else self._on(kind.requirement, named)
        submission = Submission(
            space_id=space.pk,
            repository_id=space.repository_id,
            owner=space.owner,
            repo=space.name,
            revision=REVISION,
            requirement=requirement,
            mode=kind.mode,
        )
        return submit(submission, replace=replace)

    def _on(self, requirement: RequirementSpec, machine: int) -> RequirementSpec:
        return replaced(requirement, worker_id=self.workers[machine].wire.worker_id)

    def place(self, number: int, where: str | int) -> None:
        """An operator places a Space: on a CPU, a GPU or one machine, or where it wants to be."""
        wanted = SPACES[number].requirement
        needs = {"cpu": RequirementSpec("cpu"), "gpu": whole_gpus(), "automatic": wanted}
        spec = needs[where] if isinstance(where, str) else self._on(wanted, where)
        with transaction.atomic():
            space = Space.objects.select_for_update(no_key=True).get(pk=self.fleet.spaces[number].pk)
            reclass_queued(space.pk, spec, actor=None, reason="An operator placed it.")

    def start_again(self, number: int) -> None:
        self.start(number, replace=True)

    def stop(self, number: int) -> None:
        stop_space(self.fleet.spaces[number].pk)

    def stop_again(self, number: int) -> None:
        """The second wish answers as the first did."""
        jobs = list(
            Job.objects.filter(space=self.fleet.spaces[number]).exclude(stop_requested_at=None).order_by("-seq")
        )
        if jobs:
            wished = jobs[0].stop_requested_at
            assert request_stop(jobs[0].pk).stop_requested_at == wished, "a second stop changed the time of the first"

    def stand(self, number: int, act: str) -> None:
        if act == "revoke":
            self.was_revoked.append(self.workers[number])
        with suppress(WrongStanding):
            standing.ACTS[act](self.workers[number].wire.worker_id, actor=None)

    def replace_credential(self, number: int) -> None:
        """Issue a token with --replace and enroll the machine again: the same worker, a new credential."""
        worker = self.workers[number]
        name = MACHINES[number].name
        issued = enrollment.issue_token(name, replace=True, life=timedelta(minutes=5))
        hello = Enrollment(issued.token, NONCE, name, "1", "http://127.0.0.1:8787")
        try:
            enrolled = enrollment.enroll(hello, address="127.0.0.1")
        except GpuWorkersDisabled:
            return
        worker.kill()
        worker.wire.credential = str(enrolled.credential)
        worker.wiped = False
        worker.start()

    def switch_remote_workers(self, *, on: bool) -> None:
        settings.OPENFACE_GPU_WORKERS_ENABLED = on
        switch.declare()

    def gateway(self, number: int, *, answers: bool) -> None:
        if not answers:
            self.closed_gateways.add(number)
        elif number not in self.closed_gateways and not self.restored:
            return
        status = Worker.Gateway.OK if answers else Worker.Gateway.TIMEOUT
        Worker.objects.filter(pk=self.workers[number].wire.worker_id).update(gateway_status=status)

    # --- machines ----------------------------------------------------------------------------------------------

    def claim(self, worker: SimulatedWorker, loss: Loss = Loss.NONE) -> Claimed | None:
        before = self.picture
        claimed = worker.claim(loss)
        if claimed is not None:
            self.claims += 1
            self.watch()
            self._judge_claim(worker, claimed, before)
        return claimed

    def _judge_claim(self, worker: SimulatedWorker, claimed: Claimed, before: Picture | None) -> None:
        """Hold a claim against what we know of the worker and of the job, in our own words."""
        assert self.picture is not None
        job = self.picture.jobs[str(claimed.job)]
        me = str(worker.wire.worker_id)
        row = self.picture.workers[me]
        lease = next(each for each in self.picture.leases if each["id"] == str(claimed.lease))
        if before is not None and any(each["id"] == lease["id"] for each in before.leases):
            return  # the repeated answer of an earlier claim
        what = f"{worker.name} was given {claimed.owner_repo}"
        assert not row["revoked"] and row["scheduling"] == "open", f"{what} while {row}"
        assert row["local"] or settings.OPENFACE_GPU_WORKERS_ENABLED, f"{what} while remote workers are switched off"
        assert worker.paused is None or self.restored, f"{what} while it is paused"
        requirement = Requirement.objects.get(pk=job["requirement"])
        if requirement.worker_id is not None:
            assert str(requirement.worker_id) == me, f"{what}, which an operator gave to another"
        elif requirement.kind == Requirement.Kind.CPU:
            assert row["local"], f"{what}: a CPU job left the house"
        assert len(set(claimed.gpus)) == requirement.gpu_count, f"{what} on {claimed.gpus}"
        cards = {gpu.uuid: gpu for gpu in worker.gpus}
        for gpu_uuid in claimed.gpus:
            card = cards[gpu_uuid]
            assert card.listed and card.healthy, f"{what} on {gpu_uuid}, which is not well"
            need = requirement.vram_mib or 0
            assert card.foreign_mib <= max(2457, card.total_mib - need), f"{what} on {gpu_uuid}, which others use"
        held = {row["gpu"] for row in self.picture.reservations if row["lease"] == lease["id"] and not row["cleared"]}
        assert held == set(claimed.gpus), f"{what} on {claimed.gpus}, and {held} are reserved"
        if before is not None and self.alone:
            self._judge_turn(what, job, before, me)

    def _judge_turn(self, what: str, job: dict[str, Any], before: Picture, me: str) -> None:
        then = before.jobs[job["id"]]
        assert then["state"] == "queued" and then["blocked_by"] is None and not then["stop"], (
            f"{what}, which was {then}"
        )
        assert then["attempts"] < 3, f"{what} for a fourth time"
        may_have = {job for job, leases in before.unreleased.items() if any(each["worker"] == me for each in leases)}
        assert job["id"] not in may_have, f"{what}, which it may have already"
        for other in before.jobs.values():
            if other["id"] in may_have:
                continue
            same = other["requirement"] == job["requirement"] and other["mode"] == job["mode"]
            waits = other["state"] == "queued" and other["blocked_by"] is None and other["attempts"] < 3
            assert not (same and waits and other["seq"] < then["seq"]), f"{what} before {other}, which is older"

    def second_machine(self, number: int) -> None:
        """Somebody copied the credential: another machine registers with it, and knows nothing."""
        original = self.workers[number]
        if original.wiped or len(self.ghosts) >= 1:
            return
        gpus = [Gpu(gpu.uuid, gpu.total_mib) for gpu in original.gpus]
        ghost = SimulatedWorker(f"ghost of {original.name}", self.same_wire(original), about=original.about, gpus=gpus)
        ghost.start()
        ghost.register()
        self.ghosts.append(ghost)
        self.doubled.append(original)

    def same_wire(self, worker: SimulatedWorker) -> Wire:
        return type(worker.wire)(worker.wire.credential)

    def remember_report(self, worker: SimulatedWorker, task: Task) -> None:
        if task.pending and len(self._old_reports) < 20:
            self._old_reports.append((worker, task, list(task.pending)))

    def late_duplicate(self, number: int) -> None:
        """An old packet arrives again, long after. Whatever is answered, nothing may break."""
        if not self._old_reports:
            return
        worker, task, said = self._old_reports[number % len(self._old_reports)]
        stray = Task(task.lease, task.job, task.mode, task.gpus, task.vram_mib, next_seq=task.next_seq)
        stray.pending = list(said)
        worker.send(stray)

    def quiet(self) -> AbstractContextManager[object]:
        """Nothing else acts on the database meanwhile."""
        return nullcontext()

    # --- time and the control plane ------------------------------------------------------------------------------

    def everybody(self) -> list[SimulatedWorker]:
        return [*self.workers, *self.ghosts]

    def pass_time(self, seconds: float, *, sweep: bool = True) -> None:
        """Time passes with the control plane up; workers that can, beat."""
        with self.quiet():
            self.shift(seconds)
            self.stamp()
            for worker in self.everybody():
                if worker.registered and worker.reachable:
                    worker.beat()
        if sweep:
            rescue.sweep()

    def away(self, seconds: float) -> None:
        """The control plane is down for so long, and comes back; nobody has spoken yet."""
        with self.quiet():
            self.shift(seconds, alive_too=True)
            stamp_alive()
            before = self.watch().jobs
            rescue.sweep()
            after = self.watch().jobs
        for job in after.values():
            now, then = job["state"], before[job["id"]]["state"]
            blamed = (then, now) in (("running", "unavailable"), ("leased", "queued"), ("building", "queued"))
            switched_off = not settings.OPENFACE_GPU_WORKERS_ENABLED
            assert not blamed or switched_off, f"job {job['id']}: {then} became {now} because of our own absence"

    def stamp(self) -> None:
        stamp_alive()

    def shift(self, seconds: float, *, alive_too: bool = False) -> None:
        statements = []
        for table, columns in clocks():
            moved = ", ".join(f"{column} = {column} - interval '{seconds} seconds'" for column in columns)
            statements.append(f"UPDATE {table} SET {moved}")
        if alive_too:
            statements.append(f"UPDATE jobs_uptime SET alive_at = alive_at - interval '{seconds} seconds'")
        with connection.cursor() as cursor:
            cursor.execute("; ".join(statements))
        if self.snapshot is not None:
            self.snapshot.passed_seconds += seconds

    def take_snapshot(self) -> None:
        self.snapshot = Snapshot(self.keep_database(), self.history.copy())

    def put_back(self) -> None:
        """An operator restores yesterday's dump: what was written since is gone, only the machines remember."""
        if self.snapshot is None:
            return
        snapshot, self.snapshot = self.snapshot, None
        self.put_database_back(snapshot.name)
        self.history = snapshot.history
        self.shift(snapshot.passed_seconds + 1, alive_too=True)
        stamp_alive()
        self.restored = True

    def keep_database(self) -> str:
        return transaction.savepoint()

    def put_database_back(self, name: str) -> None:
        transaction.savepoint_rollback(name)

    def speak(self, worker: SimulatedWorker, picture: Picture) -> None:
        """A heartbeat; of a machine that has nothing and of which nothing is known, only the sign of life."""
        me = str(worker.wire.worker_id)
        concerned = any(lease["worker"] == me and not lease["cleared"] for lease in picture.leases)
        if worker.registered and worker.told_all and not worker.journal and not worker.containers and not concerned:
            with connection.cursor() as cursor:
                cursor.execute(
                    "UPDATE workers_worker SET last_seen_at = statement_timestamp()"
                    " WHERE id = %s AND session = %s AND credential_hash = %s AND revoked_at IS NULL",
                    [me, worker.session, worker.credential_hash],
                )
                if cursor.rowcount:
                    return
        worker.beat()

    def anything_to_claim(self) -> bool:
        """Whether any job waits for a worker; the picture is of now then."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT EXISTS (SELECT FROM jobs_job WHERE state = 'queued' AND blocked_by_id IS NULL)")
            row = cursor.fetchone()
        if row is None or not row[0]:
            return False
        self.watch()
        return True

    # --- looking -----------------------------------------------------------------------------------------------

    def watch(self) -> Picture:
        """Look at the database and check what must always be true."""
        self.picture = truths.look(events_after=self.history.last_id)
        truths.check(self.picture, self.history)
        self._watchmachines_of(self.picture)
        return self.picture

    def _watchmachines_of(self, picture: Picture) -> None:
        """What exists on a machine keeps its reservation until the machine says that it is gone."""
        known = {lease["id"]: lease for lease in picture.leases}
        for worker in self.workers:
            for lease in worker.told_to_remove:
                assert str(lease) in known, f"{worker.name} was told to remove {lease}, which nobody here knows"
            worker.told_to_remove.clear()
            if self.restored or worker in self.doubled or picture.workers[str(worker.wire.worker_id)]["revoked"]:
                continue
            for lease in worker.containers:
                if worker in self.was_revoked:
                    continue
                assert not known[str(lease)]["cleared"], f"{worker.name} still has {lease}, which counts no more"


def open_world(fleet: Fleet, wire: Callable[[str], Wire], kind: type[World] = World) -> World:
    """The world as it was founded."""
    settings.OPENFACE_GPU_WORKERS_ENABLED = True
    workers = machines_of(fleet, wire)
    for worker in workers:
        worker.start()
        worker.session = 1
    return kind(fleet, workers)


def refresh() -> None:
    """Everybody was heard just now, every lease has just been renewed, and we have been up for a day."""
    with connection.cursor() as cursor:
        cursor.execute(FRESH)
