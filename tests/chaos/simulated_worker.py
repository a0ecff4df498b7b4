"""A GPU machine and the worker on it, as the protocol describes them: no database, no thread, no clock.

It keeps its own idea of the world (containers of the engine, a journal of its jobs) and learns only what the wire tells
it. One call of a method is one thing that a real worker would do at that moment; which call comes next, and what the
network does to it, is the schedule's choice.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.chaos.wire import About, Claimed, Hold, Loss, Lost, Reading, Refused, Said, Told, Wire

DESKTOP_MIB = 400  # what a card's own desktop takes
COMING = ("leased", "building", "starting")


@dataclass
class Container:
    """What the engine says of one container of ours. It lives on when the worker's process does not."""

    lease: uuid.UUID
    job: uuid.UUID
    mode: str
    gpus: tuple[str, ...]
    vram_mib: int | None
    running: bool = True
    exit_code: int = 0
    rebooted: bool = False  # it ended because the machine did


@dataclass
class Task:
    """A job in the worker's hands: its journal entry, and the wish that ends it."""

    lease: uuid.UUID
    job: uuid.UUID
    mode: str
    gpus: tuple[str, ...]
    vram_mib: int | None
    phase: str = "leased"
    next_seq: int = 1
    confirmed_through: int = 0  # the last event that the control plane said it has
    pending: list[Said] = field(default_factory=list)
    wish: str = ""  # "stop": end and tell; "lost": end and tell nobody
    on_hold: bool = False  # the control plane does not know the lease
    confirmed: bool = True  # an adopted task waits for the answer to register

    def tell(self, kind: str, **data: object) -> None:
        self.pending.append(Said(self.next_seq, kind, data))
        self.next_seq += 1

    def align(self, expected: int) -> None:
        """Go on at `expected`: forget what the server has, tell the phase anew where it has less."""
        self.pending = [said for said in self.pending if said.seq >= expected]
        first = self.pending[0].seq if self.pending else self.next_seq
        if first > expected and self.phase != "exited":
            self.pending.insert(0, Said(expected, "snapshot", {"state": self.phase}))
        self.pending = [Said(expected + place, said.kind, said.data) for place, said in enumerate(self.pending)]
        self.next_seq = expected + len(self.pending)


@dataclass
class Gpu:
    """A card, and what the world does to it."""

    uuid: str
    total_mib: int
    foreign_mib: int = 0
    healthy: bool = True
    listed: bool = True


class SimulatedWorker:
    def __init__(self, name: str, wire: Wire, *, about: About, gpus: list[Gpu]) -> None:
        self.name, self.wire, self.about, self.gpus = name, wire, about, gpus
        # the machine
        self.containers: dict[uuid.UUID, Container] = {}
        self.engine_answers = True
        self.reachable = True
        # on disk
        self.journal: dict[uuid.UUID, Task] = {}
        self.wiped = False  # revoked: the credential is gone
        # the process
        self.alive = False
        self.superseded = False  # it ended with 78 and is not started again by itself
        self.invalid = False  # its credential is not known; not final, it asks again
        self.paused: str | None = None
        self.cards_failed = False  # since the last time it rested
        self.told_to_remove: set[uuid.UUID] = set()
        self._told: dict[uuid.UUID, Told] = {}
        self._new_process()

    def _new_process(self) -> None:
        self.session = 0
        self.beat_number = 0
        self.inventory_done = False
        self.told_paused = False  # whether the control plane heard in this session that it is paused
        self.standing = "open"
        self.key = uuid.uuid4().hex
        self._heard: object = None

    @property
    def credential_hash(self) -> str:
        return hashlib.sha256(self.wire.credential.split("_", 2)[2].encode()).hexdigest()

    @property
    def told_all(self) -> bool:
        """Whether the control plane has heard, in this session, all that we would say now."""
        return self._heard == self._words()

    def _words(self) -> object:
        return self.session, self._why_paused(), self.readings(), self.holds()

    @property
    def registered(self) -> bool:
        return self.alive and self.session > 0

    def tasks(self) -> list[Task]:
        return list(self.journal.values())

    # --- what the world does to it -----------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process: look at what a former one left. It says nothing before `register`."""
        if self.alive or self.wiped:
            return
        self.alive, self.superseded = True, False
        self._new_process()
        self._take_inventory()

    def kill(self) -> None:
        """End the process at once. Containers and the journal stay."""
        self.alive = False
        for task in self.journal.values():
            task.wish, task.on_hold = "", False

    def reboot(self) -> None:
        """The machine restarts: every container has ended, and nothing starts one but the worker."""
        self.kill()
        for container in self.containers.values():
            if container.running:
                container.running, container.exit_code, container.rebooted = False, 137, True

    def remove_by_hand(self, lease: uuid.UUID) -> None:
        self.containers.pop(lease, None)

    def app_ends(self, lease: uuid.UUID, code: int) -> None:
        container = self.containers[lease]
        container.running, container.exit_code = False, code

    def engine(self, *, answers: bool) -> None:
        self.engine_answers = answers
        if answers and self.alive and not self.inventory_done:
            self._take_inventory()
            if self.registered:
                self._confirm()

    # --- calls -------------------------------------------------------------------------------------------------

    def register(self, loss: Loss = Loss.NONE) -> None:
        def call() -> None:
            answer = self.wire.register(self.about, self.readings(), self.holds(), loss=self._loss(loss))
            self.session, self.beat_number, self.told_paused = answer.session, 0, False
            self._heard = self._words()
            self._take(answer.standing, answer.told)
            self._confirm()

        if self.alive:
            self._say(call)

    def beat(self, loss: Loss = Loss.NONE) -> None:
        def call() -> None:
            self.beat_number += 1
            confirmed = {task.lease: task.confirmed_through for task in self.tasks()}
            answer = self.wire.heartbeat(
                self.session,
                self.beat_number,
                self._why_paused(),
                self.readings(),
                self.holds(),
                loss=self._loss(loss),
            )
            self._heard = self._words()
            self.told_paused = self.paused is not None
            self._take(answer.standing, answer.told)
            self._compare(confirmed)
            self._confirm()

        if not self.registered:
            self.register(loss)
        else:
            self._say(call)

    def claim(self, loss: Loss = Loss.NONE) -> Claimed | None:
        """Ask for a job. It asks even while it drains, and while it is paused and has said so: the control plane must
        know better. What only itself knows it heeds itself.
        """
        found: list[Claimed] = []

        def call() -> None:
            gpu, cpu = self._free_slots()
            if not (gpu or cpu):
                return
            claimed = self.wire.claim(self.session, gpu, cpu, self.readings(), self.key, loss=self._loss(loss))
            self.key = uuid.uuid4().hex
            if claimed is not None:
                found.append(claimed)
                self._adopt_claim(claimed)

        heeds_its_pause = self.paused is not None and not self.told_paused
        if self.registered and self.inventory_done and self.engine_answers and not heeds_its_pause:
            self._say(call)
        return found[0] if found else None

    def send(self, task: Task, loss: Loss = Loss.NONE) -> None:
        """Report what is pending."""

        def call() -> None:
            batch = list(task.pending)
            receipt = self.wire.report(self.session, task.job, task.lease, batch, loss=self._loss(loss))
            task.pending = [said for said in task.pending if said.seq > receipt.accepted_through]
            task.confirmed_through = receipt.accepted_through
            if receipt.stop and task.wish == "":
                task.wish = "stop"

        if self.registered and task.confirmed and not task.on_hold and task.pending and task.wish != "lost":
            self._say(call, task)

    def renew(self, task: Task, loss: Loss = Loss.NONE) -> bool:
        """Whether the lease is still ours, asked now."""
        granted: list[bool] = []

        def call() -> None:
            self.wire.renew(self.session, task.job, task.lease, loss=self._loss(loss))
            granted.append(True)

        if self.registered:
            self._say(call, task)
        return bool(granted)

    # --- one step of one job -----------------------------------------------------------------------------------

    def work(self, task: Task, choice: str = "go", loss: Loss = Loss.NONE) -> None:
        """Do the next thing for this job and report it. `choice`: "go", "fail" where it may, or "decline"."""
        if not self.alive or not self.inventory_done or not task.confirmed or not self.engine_answers:
            return
        if task.wish == "lost":
            self._forget(task)
        elif task.on_hold:
            return  # kept as it is, for an operator to look at
        elif task.phase == "exited":
            self.send(task, loss)
            if not task.pending or task.wish == "lost":
                self._forget(task)
        elif task.wish == "stop":
            self.containers.pop(task.lease, None)
            task.tell("stopped")
            task.phase = "exited"
            self.send(task, loss)
        else:
            self._go_on(task, choice, loss)

    def _go_on(self, task: Task, choice: str, loss: Loss) -> None:
        container = self.containers.get(task.lease)
        coming = task.phase in COMING
        if coming and choice == "fail":
            self.containers.pop(task.lease, None)
            task.tell("failed", reason="build_failed", detail="It does not build.")
            task.phase = "exited"
        elif choice == "decline":  # a build at shutdown, or whatever runs when the machine's owner wants it back
            self.containers.pop(task.lease, None)
            task.tell("declined", reason="paused" if container else "shutdown")
            task.phase = "exited"
        elif task.phase == "leased":
            task.phase = "building"
            task.tell("building")
        elif task.phase == "building":
            if not self.renew(task):
                return  # nothing is created without a renewal that was asked for after the build
            task.phase = "starting"
            task.tell("starting", image_id="sha256:1")
            self.containers[task.lease] = Container(task.lease, task.job, task.mode, task.gpus, task.vram_mib)
        elif container is None:
            task.tell("failed", reason="container_lost", detail="It was removed.")
            task.phase = "exited"
        elif not container.running and (task.mode == "batch" or task.phase == "running"):
            task.tell("exited", code=container.exit_code, oom_killed=False)
            task.phase = "exited"
        elif not container.running:
            self.containers.pop(task.lease)
            task.tell("failed", reason="exited_before_ready", detail="It exited.")
            task.phase = "exited"
        elif task.phase == "starting":
            task.phase = "running"
            task.tell("running", image_id="sha256:1", gpus=list(task.gpus))
        self.send(task, loss)

    def _forget(self, task: Task) -> None:
        self.containers.pop(task.lease, None)
        self.journal.pop(task.lease, None)

    # --- what it says ------------------------------------------------------------------------------------------

    def holds(self) -> list[Hold] | None:
        """All it has in any phase: jobs in hand, and containers with our label. None: the engine does not answer."""
        if not self.engine_answers or not self.inventory_done:
            return None
        listed = {task.lease: Hold(task.lease, task.phase) for task in self.journal.values()}
        for lease, container in self.containers.items():
            listed.setdefault(lease, Hold(lease, "running" if container.running else "exited"))
        return list(listed.values())

    def readings(self) -> list[Reading]:
        """The driver's picture of the cards now."""
        return [self._reading(index, gpu) for index, gpu in enumerate(self.gpus) if gpu.listed]

    def _reading(self, index: int, gpu: Gpu) -> Reading:
        users = [each for each in self.containers.values() if each.running and gpu.uuid in each.gpus]
        ours = tuple((each.lease, (each.vram_mib or 8_000) * 9 // 10) for each in users)
        used = sum(mib for _, mib in ours) + gpu.foreign_mib + DESKTOP_MIB
        return Reading(gpu.uuid, index, gpu.total_mib, max(0, gpu.total_mib - used), ours, gpu.foreign_mib, gpu.healthy)

    def _free_slots(self) -> tuple[int, int]:
        busy = [task for task in self.journal.values() if task.phase != "exited"]
        gpu = sum(1 for task in busy if task.gpus)
        return max(0, self.about.max_gpu - gpu), max(0, self.about.max_cpu - (len(busy) - gpu))

    def _why_paused(self) -> str | None:
        if not self.engine_answers:
            return "The container engine does not answer."
        return self.paused if self.inventory_done else "The worker is looking at what it left running."

    # --- what it does with answers -----------------------------------------------------------------------------

    def _loss(self, loss: Loss) -> Loss:
        return loss if self.reachable else Loss.REQUEST

    def _say(self, call: Callable[[], None], task: Task | None = None) -> None:
        """Make a call and take its refusals as the protocol says."""
        try:
            call()
            self.invalid = False
        except Lost:
            return
        except Refused as refusal:
            self._refused(refusal, task)

    def _refused(self, refusal: Refused, task: Task | None) -> None:
        match refusal.code:
            case "lease_stale" if task is not None:
                task.wish = "lost"
            case "lease_stale":
                self.key = uuid.uuid4().hex  # a claim's key whose lease has ended
            case "event_gap" if task is not None and refusal.expected_seq is not None:
                task.align(refusal.expected_seq)
            case "session_superseded":
                self.kill()
                self.superseded = True
            case "credential_revoked":
                self._end_revoked()
            case "not_found" if task is not None:
                pass  # a restored database does not know it (yet): kept, and told again later
            case "credential_invalid":
                self.invalid = True
            case "gpu_workers_disabled":
                self.key = uuid.uuid4().hex
            case _:
                raise AssertionError(f"{self.name} was answered {refusal.code}") from refusal

    def _end_revoked(self) -> None:
        for task in self.tasks():
            self._forget(task)
        self.containers.clear()
        self.kill()
        self.wiped = True

    def _take(self, standing: str, told: tuple[Told, ...]) -> None:
        self.standing = standing
        self._told = {each.lease: each for each in told}
        for each in told:
            task = self.journal.get(each.lease)
            if task is None:
                continue
            task.on_hold = each.want == "hold"
            if task.on_hold and task.phase in ("leased", "building"):
                task.wish = "lost"  # nobody could give it its place in the line
            if each.want == "remove":
                task.wish = "lost"
                self.told_to_remove.add(each.lease)
            elif each.want == "stop" and task.wish == "":
                task.wish = "stop"

    def _compare(self, confirmed: dict[uuid.UUID, int]) -> None:
        """Tell anew where a job is whose confirmed events the control plane expects again: its database was restored.
        `confirmed`: what it had confirmed when it was asked.
        """
        for lease, through in confirmed.items():
            task, told = self.journal.get(lease), self._told.get(lease)
            if task is None or told is None or told.next_seq is None or task.confirmed_through != through:
                continue
            if told.next_seq <= through:
                task.confirmed_through = told.next_seq - 1
                task.align(told.next_seq)

    def _take_inventory(self) -> None:
        """What goes on of a former process: what has a container, and what has ended and is not told yet."""
        if not self.engine_answers:
            return
        for task in self.tasks():
            if task.lease not in self.containers and task.phase in COMING:
                self.journal.pop(task.lease)
                continue
            if task.phase in ("leased", "building"):
                task.phase = "starting"
            task.confirmed = False
        for lease, container in self.containers.items():
            if lease not in self.journal:
                phase = "starting"
                self.journal[lease] = Task(
                    lease, container.job, container.mode, container.gpus, container.vram_mib, phase, confirmed=False
                )
        self.inventory_done = True

    def _confirm(self) -> None:
        """The answer to register is here: adopted jobs go on from where the server is."""
        for task in self.tasks():
            if task.confirmed or task.on_hold:
                continue
            task.confirmed = True
            told = self._told.get(task.lease)
            if told is not None and told.next_seq is not None:
                task.align(told.next_seq)
            container = self.containers.get(task.lease)
            if container is None or not container.rebooted or task.mode == "batch" or task.phase == "exited":
                continue
            if task.wish:
                continue
            container.running, container.rebooted = True, False  # same lease, same image
            task.phase = "starting"
            task.tell("starting", reason="host_rebooted", image_id="sha256:1")

    def _adopt_claim(self, claimed: Claimed) -> None:
        if claimed.lease not in self.journal:
            self.journal[claimed.lease] = Task(claimed.lease, claimed.job, claimed.mode, claimed.gpus, claimed.vram_mib)
