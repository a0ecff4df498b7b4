"""Who this worker is and how it does: enroll, status, doctor, verify."""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Sequence

from gpu_worker.answer import EXIT_UNEXPECTED, Answer
from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import Credential, CredentialStore
from gpu_worker.data_dir import ENROLL, DataDirLock, in_use
from gpu_worker.doctor import examine, network
from gpu_worker.doctor.settings import settings
from gpu_worker.enrollment import enroll
from gpu_worker.journal import Journal
from gpu_worker.pause import PauseFile, in_force, moment
from gpu_worker.protocol import DoctorCheck
from gpu_worker.self_report import SelfReport, SelfReportFile
from gpu_worker.verification import verify_live

MARKS = {True: "ok ", False: "BAD", None: "?  "}
GATEWAY_WORDS = {
    "ok": "the control plane reaches it",
    "refused": "the control plane is refused there",
    "timeout": "the control plane gets no answer there",
    "proposed": "waits until an operator approves its address",
}


def enroll_now(config: WorkerConfig, arguments: Namespace) -> Answer:
    """Exchange the token for a credential."""
    with DataDirLock(config.data_dir, ENROLL):
        # a port of 0 is known only to the running gateway: propose nothing then
        url = config.gateway_url(config.gateway_port) if config.public_url or config.gateway_port else None
        credential = enroll(config, gateway_url=url)
    return Answer(
        {"worker_id": credential.worker_id, "name": credential.name},
        f"Enrolled as {credential.name} ({credential.worker_id}).",
    )


def status(config: WorkerConfig, arguments: Namespace) -> Answer:
    """Who this worker is and what it does, from its data directory alone."""
    credential = CredentialStore(config.data_dir).load()
    running = in_use(config.data_dir)
    last = SelfReportFile(config.data_dir).read()
    told = last if running else None
    ended = _ended(config, credential, None if running else last)
    control_plane = told.control_plane if told and told.control_plane else config.url
    pause = in_force(PauseFile(config.data_dir).read(), time.time())
    records = Journal(config.data_dir).load_all() if (config.data_dir / "jobs").is_dir() else []
    jobs = [
        {
            "job": record.facts.job,
            "lease": record.facts.lease,
            "space": f"{record.facts.owner}/{record.facts.repo}",
            "state": record.phase,
            "gpus": list(record.facts.gpus),
            "not_released": record.unreleased,
        }
        for record in records
    ]
    facts = {
        "worker_id": credential.worker_id if credential else None,
        "name": credential.name if credential else None,
        "running": running,
        "ended_because": ended,
        "control_plane": control_plane or None,
        "control_plane_in_settings": config.url or None,
        "answers": told.answers if told else None,
        "problem": told.problem if told else None,
        "standing": told.standing if told else None,
        "gateway": told.gateway if told else None,
        "gateway_address": told.gateway_address if told else None,
        "gateway_because": told.gateway_detail if told else None,
        "gateway_trouble": told.gateway_trouble if told else None,
        "takes_no_jobs_because": told.paused if told else None,
        "takes_no_gpu_jobs_because": told.no_gpu_jobs if told else None,
        "paused": pause is not None,
        "paused_until": moment(pause.until) if pause and pause.until is not None else None,
        "jobs": jobs,
    }
    lines = [
        f"{credential.name} ({credential.worker_id})" if credential else "Not enrolled.",
        f"Worker process: {'running' if running else 'not running'}{f': {ended}' if ended else ''}",
        f"Control plane: {control_plane or 'not set'}{_contact(told)}",
        *(
            [f"The settings name {config.url} by now, which counts from the worker's next start."]
            if config.url and config.url != control_plane
            else []
        ),
        *([f"Gateway: {told.gateway_address or 'no address'}: {_gateway(told)}"] if told else []),
        *([pause.sentence()] if pause else []),
        *([f"Takes no jobs: {told.paused}"] if told and told.paused and not pause else []),
        *([f"Takes no GPU jobs: {told.no_gpu_jobs}"] if told and told.no_gpu_jobs else []),
    ]
    lines += [f"{job['space']}: {job['not_released'] or job['state']} (lease {job['lease']})" for job in jobs]
    lines += [] if jobs else ["No jobs."]
    return Answer(facts, "\n".join(lines))


def doctor(config: WorkerConfig, arguments: Namespace) -> Answer:
    """What this machine needs to run jobs."""
    tests = arguments.test_device or arguments.test_image is not None
    own = examine(config, test_device=tests, image=arguments.test_image)
    return checked([*settings(config), *own, *network(config)])


def verify(config: WorkerConfig, arguments: Namespace) -> Answer:
    """Whether what the running worker promises holds now, from end to end."""
    own = examine(config, test_device=True, image=arguments.test_image)
    return checked([*settings(config), *own, *verify_live(config)])


def checked(checks: Sequence[DoctorCheck]) -> Answer:
    """The checks as an answer; exit code 1 where one is bad."""
    bad = [check for check in checks if check.ok is False]
    lines = [
        f"{MARKS[check.ok]} {check.check}: {check.detail or ''}" + (f"\n      → {check.remedy}" if check.remedy else "")
        for check in checks
    ]
    unknown = sum(check.ok is None for check in checks)
    lines.append(f"{len(checks)} checks: {len(bad)} bad, {unknown} without a verdict.")
    facts = {"ok": not bad, "checks": [check.wire() for check in checks]}
    return Answer(facts, "\n".join(lines), EXIT_UNEXPECTED if bad else 0)


def _contact(told: SelfReport | None) -> str:
    if told is None:
        return ""
    if told.answers:
        return f" answers; this worker is {told.standing}"
    return f" does not answer: {told.problem}" if told.problem else " has not answered yet"


def _ended(config: WorkerConfig, credential: Credential | None, last: SelfReport | None) -> str | None:
    """The final answer after which no worker runs here; None: there was none, or it is not known."""
    if last is not None and last.ended:
        return last.ended
    return CredentialStore(config.data_dir).ended_by(None) if credential is None else None


def _gateway(told: SelfReport) -> str:
    if told.gateway_trouble is not None:
        return told.gateway_trouble
    seen = told.gateway_detail or GATEWAY_WORDS.get(told.gateway or "", "the control plane has not looked yet")
    if told.gateway_called and told.gateway_url not in (None, told.gateway_called) and not told.gateway_detail:
        seen += f". It does not call {told.gateway_url}, which this worker proposes"
    return seen
