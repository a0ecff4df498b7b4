"""What the owner of the machine says to the worker on it: pause, resume."""

from __future__ import annotations

import time
from argparse import Namespace
from datetime import datetime

from gpu_worker.answer import Answer
from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import CredentialStore
from gpu_worker.data_dir import WHICH, in_use
from gpu_worker.errors import ConfigError
from gpu_worker.journal import Journal
from gpu_worker.pause import LONGEST_REASON, Pause, PauseFile, duration, in_force, moment, time_of_day


def pause(config: WorkerConfig, arguments: Namespace) -> Answer:
    """Take no more jobs, from this moment on; with ``--now`` also stop what runs and hand it back."""
    said = Pause(
        since=time.time(), until=_until(arguments), reason=_reason(arguments.reason), stop_apps=bool(arguments.now)
    )
    running = _has_worker(config)
    PauseFile(config.data_dir).write(said)
    jobs = len(Journal(config.data_dir).load_all()) if running else 0
    what = "are stopped and go back to the line" if said.stop_apps else "go on until they end"
    lines = [said.sentence(), f"{jobs} job(s) {what}." if jobs else "No job is here."]
    if not running:
        lines[1:] = ["No worker is running; the next one starts paused."]
    facts = {
        "paused": True,
        "until": moment(said.until) if said.until is not None else None,
        "reason": said.reason,
        "now": said.stop_apps,
        "running": running,
        "jobs": jobs,
    }
    return Answer(facts, "\n".join(lines))


def resume(config: WorkerConfig, arguments: Namespace) -> Answer:
    """End the pause."""
    _has_worker(config)
    file = PauseFile(config.data_dir)
    was = in_force(file.read(), time.time())
    file.remove()
    text = "Jobs are taken again." if was else "It was not paused."
    return Answer({"paused": False, "was_paused": was is not None}, text)


def _has_worker(config: WorkerConfig) -> bool:
    """Whether a worker runs with this data directory. Raises ConfigError where there never was one.

    A pause that lies where no worker looks would leave its owner in the belief that the machine is free.
    """
    running = in_use(config.data_dir)
    if not running and CredentialStore(config.data_dir).load() is None:
        raise ConfigError(f"There is no worker in {config.data_dir}. {WHICH}")
    return running


def _until(arguments: Namespace) -> float | None:
    now = datetime.now().astimezone()
    if arguments.for_ and arguments.until:
        raise ConfigError("Give --for or --until, not both.")
    if arguments.for_:
        return (now + duration(arguments.for_)).timestamp()
    return time_of_day(arguments.until, now=now).timestamp() if arguments.until else None


def _reason(text: str | None) -> str:
    """One line, short enough to be shown whole."""
    reason = " ".join((text or "").split())
    if len(reason) > LONGEST_REASON:
        raise ConfigError(f"The reason is longer than {LONGEST_REASON} characters.")
    return reason
