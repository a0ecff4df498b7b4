"""One run of the worker: puts the parts together, starts the loops, and ends them in order.

Exit codes: 0 stopped as asked · 1 unexpected, or the heartbeat is wedged · 2 the settings cannot work ·
78 final: revoked, or another process took over.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from gpu_worker import __version__, open_files, standing_down
from gpu_worker.answer import EXIT_FINAL, EXIT_OK, EXIT_UNEXPECTED
from gpu_worker.build_key import BuildKey
from gpu_worker.claiming import ClaimLoop
from gpu_worker.config import WorkerConfig
from gpu_worker.containers import ContainerEngine
from gpu_worker.credentials import Credential, CredentialStore
from gpu_worker.crew import Crew
from gpu_worker.data_dir import RUN, DataDirLock
from gpu_worker.disk import DiskFloor
from gpu_worker.disk_guard import guard_disk
from gpu_worker.doctor import examine
from gpu_worker.enrollment import control_plane, enroll, read_token
from gpu_worker.errors import CallFailed, Final, Refused, Revoked, WireError
from gpu_worker.executor import Executor
from gpu_worker.gateway import Gateway
from gpu_worker.gpu_report import GpuProbe
from gpu_worker.gpus import NvmlProbe
from gpu_worker.heartbeat import Heartbeat
from gpu_worker.holdings import Holdings
from gpu_worker.house_calls import HouseCalls
from gpu_worker.housekeeping import Housekeeping
from gpu_worker.journal import Journal
from gpu_worker.link import Link
from gpu_worker.machine import Machine
from gpu_worker.pause import PauseFile, PauseWatch
from gpu_worker.processes import ProcessExecutor
from gpu_worker.self_report import SelfReport, SelfReportFile, waiting
from gpu_worker.signals import SignalListener
from gpu_worker.simulated_gpus import SimulatedProbe, read_simulated
from gpu_worker.source import SourceFetcher
from gpu_worker.stop_signals import StopSignals
from gpu_worker.wishes import LOST, SHUTDOWN, Wish
from gpu_worker.workshop import Workshop

logger = logging.getLogger(__name__)
_T = TypeVar("_T")

TICK_SECONDS = 0.2
FIRST_BACKOFF_SECONDS, LONGEST_BACKOFF_SECONDS = 0.5, 15.0
SHUTDOWN_SECONDS = 8.0  # below the 10 s that docker stop and compose give
REVOKED_SECONDS = 60.0
ENGINE_RETRY_SECONDS = 1.0


def run(config: WorkerConfig) -> int:
    """Work until a signal or a final answer; the exit code. Raises ConfigError.

    Where an engine would start us again after a final answer, wait in silence until a new start makes sense.
    """
    open_files.allow_many()
    store = CredentialStore(config.data_dir)
    with DataDirLock(config.data_dir, RUN):
        ended = None if store.load() else store.ended_by(read_token(config))
        code, reason = (EXIT_FINAL, ended) if ended else _Agent(config, store).run()
    if code == EXIT_FINAL:
        _stand_down(config, store, reason)
    return code


def make_executor(config: WorkerConfig, worker_id: str) -> Executor:
    if config.executor == "process":
        return ProcessExecutor(worker_id, config.data_dir)
    return ContainerEngine(
        worker_id,
        limit_defaults=config.limit_defaults,
        build=config.build,
        keep_space_data=config.keep_space_data,
        build_key=BuildKey(config.data_dir),
    )


class _Agent:
    def __init__(self, config: WorkerConfig, store: CredentialStore) -> None:
        self._config, self._store = config, store
        self._stop = threading.Event()
        self._closing = threading.Event()
        """Ends the waits inside calls; set only when the last reports are out."""
        self._final: Final | None = None
        self._signals = 0
        self._waits_for: str | None = None
        """Why the control plane has not taken us yet."""
        self._gateway = Gateway(
            config.bind_address, config.gateway_port, max_callers_per_app=config.max_callers_per_app
        )
        self._pauses = PauseWatch(PauseFile(config.data_dir))
        self._self_report = SelfReportFile(config.data_dir)

    # -- life --------------------------------------------------------------------------------------------------

    def run(self) -> tuple[int, str]:
        """The exit code, and the sentence of a final answer."""
        self._stop_signals = StopSignals(self._on_signal)
        self._self_report.remove()  # of the process before this one
        self._gateway.start()
        try:
            gateway_url = self._config.gateway_url(self._gateway.port)
            credential = self._until_reachable(
                lambda: enroll(self._config, gateway_url=gateway_url, closing=self._stop),
                tell=lambda: self._write_report(waiting(self._config.url, gateway_url, self._waits_for)),
            )
            code = EXIT_OK if self._final is None else EXIT_FINAL
            if credential is not None:
                self._put_together(credential)
                code = self._work(gateway_url)
            return code, str(self._final or "")
        finally:
            self._closing.set()
            self._gateway.stop()

    def _put_together(self, credential: Credential) -> None:
        config = self._config
        self._gateway.identify(credential)
        self._client = control_plane(config, self._closing)
        self._client.credential = credential
        self._executor = make_executor(config, credential.worker_id)
        self._journal = Journal(config.data_dir)
        self._machine = Machine(config, credential.worker_id, self._executor, _probe(config))
        self._holdings = Holdings()
        self._housekeeping = Housekeeping(
            DiskFloor(config.disk_floor_mib),
            config.data_dir,
            self._executor.images if isinstance(self._executor, ContainerEngine) else None,
            in_hand=self._holdings.image_ids,
        )
        self._link = Link(
            self._client,
            config,
            self._machine,
            self._holdings,
            self._executor,
            reasons=[self._pauses.reason, self._gateway.reason, self._housekeeping.reason],
        )
        self._heartbeat = Heartbeat(self._link, self._on_final)
        self._claims = ClaimLoop(
            self._client,
            config,
            self._link,
            self._machine,
            self._holdings,
            take=lambda claim: self._crew.take(claim),
            tidy=self._housekeeping.tidy,
            on_final=self._on_final,
        )
        self._listener = SignalListener(
            self._client, on_work=self._claims.claim_now, on_wish=self._heartbeat.beat_now, on_final=self._on_final
        )
        self._workshop = Workshop(
            client=self._client,
            executor=self._executor,
            journal=self._journal,
            sources=SourceFetcher(verify_tls=config.verify_tls, limits=config.source_limits),
            routes=self._gateway,
            work_dir=config.data_dir / "work",
            worker_name=credential.name,
            gpus=lambda: self._machine.picture(self._link.intervals.heartbeat_seconds).gpu.gpus,
            driver=self._machine.driver,
            intervals=lambda: self._link.intervals,
            contact_at=lambda: self._link.contact_at or self._started_at,
            on_final=self._on_final,
            make_room=lambda: len(self._housekeeping.empty()),
            releases=self._machine.releases,
            look_again=self._machine.look_again,
            gpu_watch_seconds=config.gpu_watch_seconds,
            unknown_lease_seconds=config.unknown_lease_seconds,
        )
        self._crew = Crew(
            executor=self._executor,
            journal=self._journal,
            machine=self._machine,
            link=self._link,
            holdings=self._holdings,
            workshop=self._workshop,
            pauses=self._pauses,
            on_change=self._on_change,
        )
        self._started_at = time.monotonic()

    def _work(self, gateway_url: str | None) -> int:
        self._mind_pause()
        self._machine.look()
        self._crew.take_inventory()
        doctor = examine(self._config)

        def register() -> None:
            self._report_self(gateway_url)
            self._link.register(gateway_url=gateway_url, doctor=doctor)

        self._until_reachable(register, tell=lambda: self._report_self(gateway_url))
        if not self._stop.is_set():
            self._crew.confirm()
            logger.info(
                "registered",
                extra={
                    "action": "registered",
                    "session": self._client.session,
                    "gateway": gateway_url,
                    "executor": self._executor.name,
                },
            )
        loops = self._start_loops() if not self._stop.is_set() else []
        latecomers: frozenset[str] = frozenset()
        while not self._stop.wait(TICK_SECONDS):
            if self._heartbeat.wedged():
                logger.critical(
                    "heartbeat is wedged; exiting so that a supervisor starts a new process", extra={"action": "wedged"}
                )
                os._exit(EXIT_UNEXPECTED)
            self._mind_pause()
            self._report_self(gateway_url)
            if not self._link.inventory_done:
                self._crew.take_inventory()
                self._crew.confirm()
            else:
                latecomers = self._crew.adopt_latecomers(latecomers)
        code = self._end(loops)
        self._report_self(gateway_url)
        return code

    def _start_loops(self) -> list[threading.Thread]:
        bodies: dict[str, Callable[[], None]] = {
            "machine": lambda: self._machine.run(self._stop, lambda: self._link.intervals.heartbeat_seconds),
            "heartbeat": lambda: self._heartbeat.run(self._stop),
            "claims": lambda: self._claims.run(self._stop),
            "signals": lambda: self._listener.run(self._stop),
            "disk": lambda: guard_disk(self._executor, self._machine, self._holdings.all, self._config, self._stop),
            "doctor": lambda: HouseCalls(self._config, tell=self._link.examined).run(self._stop),
        }
        threads = [threading.Thread(target=body, name=name, daemon=True) for name, body in bodies.items()]
        for thread in threads:
            thread.start()
        self._claims.claim_now()
        return threads

    def _until_reachable(self, act: Callable[[], _T], *, tell: Callable[[], None]) -> _T | None:
        """Do it, again and again while the control plane cannot be reached; None when the worker is to stop.

        *tell* is called when it is known anew why not.
        """
        backoff = FIRST_BACKOFF_SECONDS
        while not self._stop.is_set():
            try:
                done = act()
            except Final as final:
                self._on_final(final)
            except (CallFailed, WireError) as problem:
                if str(problem) != self._waits_for:
                    logger.warning(
                        "waiting for the control plane", extra={"action": "link_waits", "problem": str(problem)}
                    )
                    self._waits_for = str(problem)
                    tell()
                slow = isinstance(problem, Refused)
                self._stop.wait(LONGEST_BACKOFF_SECONDS if slow else backoff)
                backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)
            else:
                self._waits_for = None
                return done
        return None

    # -- while it works ----------------------------------------------------------------------------------------

    def _mind_pause(self) -> None:
        """Obey the owner of this machine within a tick, and let the control plane know at once."""
        if not self._pauses.look(time.time()):
            return
        pause = self._pauses.current
        logger.info(
            "paused" if pause else "resumed",
            extra={"action": "paused", "reason": pause.sentence()} if pause else {"action": "resumed"},
        )
        self._crew.hand_back_if_paused()
        self._heartbeat.beat_now()
        self._claims.claim_now()

    def _report_self(self, gateway_url: str | None) -> None:
        picture, paused = self._machine.newest, self._link.paused_reason()
        report = SelfReport(
            pid=os.getpid(),
            version=__version__,
            answers=self._link.contact_at > 0 and self._heartbeat.trouble is None,
            problem=self._heartbeat.trouble or self._waits_for,
            standing=self._link.standing,
            gateway_url=gateway_url,
            gateway=self._link.gateway,
            paused=paused,
            paused_by_owner=paused is not None and paused == self._pauses.reason(),
            no_gpu_jobs=None if picture is None else picture.quiet,
            control_plane=self._config.url,
            gateway_trouble=self._gateway.trouble,
            gateway_called=self._link.gateway_called,
            gateway_detail=self._link.gateway_detail,
            ended=None if self._final is None else str(self._final),
        )
        self._write_report(report)

    def _write_report(self, report: SelfReport) -> None:
        try:
            self._self_report.write(report)
        except OSError as problem:
            logger.warning("status not written", extra={"action": "status_unwritten", "problem": str(problem)})

    def _on_change(self) -> None:
        """Nothing of a job is left: its place is free, and the server should know soon."""
        self._machine.look_again()
        self._heartbeat.beat_now()
        self._claims.claim_now()

    # -- the end -----------------------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        self._signals += 1
        if self._signals > 1:
            os._exit(EXIT_UNEXPECTED)
        logger.info("stopping; running apps live on", extra={"action": "stopping", "signal": number})
        self._stop.set()

    def _on_final(self, final: Final) -> None:
        if self._final is None:
            self._final = final
            logger.error(str(final), extra={"action": type(final).__name__.lower()})
        self._stop.set()

    def _end(self, loops: list[threading.Thread]) -> int:
        self._link.stopping = True
        self._claims.claim_now()
        self._heartbeat.beat_now()
        for thread in loops:
            if thread.name == "claims":
                thread.join(3)  # a claim under way may still bring a job, which must be given back
        if isinstance(self._final, Revoked):
            return self._end_revoked(str(self._final))
        self._crew.end(Wish(SHUTDOWN), deadline=time.monotonic() + SHUTDOWN_SECONDS)
        return EXIT_OK if self._final is None else EXIT_FINAL

    def _end_revoked(self, reason: str) -> int:
        """Leave nothing of ours running, then forget who we were.

        While the engine does not answer we stay who we are and exit with 1: the next start hears of the revocation
        again and finishes this. Without the credential nobody would know any more what is ours.
        """
        deadline = time.monotonic() + REVOKED_SECONDS
        self._machine.releases.close()
        while not self._link.inventory_done and time.monotonic() < deadline:
            self._machine.look()
            self._crew.take_inventory()
            if not self._link.inventory_done:
                time.sleep(ENGINE_RETRY_SECONDS)
        self._crew.end(Wish(LOST, reason), deadline=deadline)
        if not self._link.inventory_done or self._holdings.all():
            logger.critical(
                "revoked, but the container engine does not answer: apps may be left running",
                extra={"action": "revoked_not_clean"},
            )
            return EXIT_UNEXPECTED
        self._store.wipe(reason=reason)
        return EXIT_FINAL


def _probe(config: WorkerConfig) -> GpuProbe:
    if config.simulate_gpus is None:
        return NvmlProbe()
    read_simulated(config.simulate_gpus)  # a broken file is a wrong setting at the start, a bad reading later
    return SimulatedProbe(config.simulate_gpus)


def _stand_down(config: WorkerConfig, store: CredentialStore, reason: str) -> None:
    """Revoked, or replaced by another process: make no request until somebody has changed something."""
    before = store.load()
    act = "Restart it" if before else "Put a new enrollment token in place"
    logger.error("%s %s to use this worker again.", reason, act, extra={"action": "standing_down"})
    if not standing_down.engine_restarts_us():
        return

    def changed() -> bool:
        now = store.load()
        return now != before or (now is None and store.ended_by(read_token(config)) is None)

    standing_down.wait_until(changed)
