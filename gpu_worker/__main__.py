"""The command ``openface-gpu-worker``."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence

from gpu_worker import __version__, agent
from gpu_worker.config import WorkerConfig, load
from gpu_worker.containers import ContainerEngine
from gpu_worker.credentials import CredentialStore
from gpu_worker.doctor import examine, reach
from gpu_worker.errors import CallFailed, ConfigError, EngineError, Final, WireError
from gpu_worker.journal import JobRecord, Journal

# flag → setting; every flag has a variable, so a service file and a shell say the same
_FLAGS = {
    "url": ("OPENFACE_URL", "address of the control plane, for example http://openface.lan:8090"),
    "token-file": ("WORKER_ENROLLMENT_TOKEN_FILE", "file with the one-time enrollment token"),
    "name": ("WORKER_NAME", "must equal the token's name, or stay empty"),
    "public-url": ("WORKER_PUBLIC_URL", "this worker's gateway as the control plane reaches it"),
    "bind": ("GPU_WORKER_BIND_ADDRESS", "address the gateway listens on (default 127.0.0.1)"),
    "port": ("GPU_WORKER_PORT", "port of the gateway (default 8787)"),
    "max-gpu-jobs": ("MAX_GPU_JOBS", "GPU jobs at a time (default 1)"),
    "max-cpu-jobs": ("MAX_CPU_JOBS", "CPU jobs at a time (default 2)"),
    "data-dir": ("WORKER_DATA_DIR", "credential, journal and working files (default /data)"),
    "executor": ("OPENFACE_EXECUTOR", "docker (default), or process: no isolation, for demos and tests"),
    "simulate-gpus": ("OPENFACE_SIMULATE_GPUS", "JSON file with simulated GPUs instead of real ones"),
    "ca-file": ("OPENFACE_CA_FILE", "certificate authorities for the control plane's TLS"),
}


def main(argv: Sequence[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    _set_up_logging(arguments.verbose)
    overrides = {setting: getattr(arguments, flag.replace("-", "_")) for flag, (setting, _) in _FLAGS.items()}
    try:
        config = load(os.environ, overrides)
        return int(arguments.act(config, arguments))
    except ConfigError as problem:
        print(problem, file=sys.stderr)
        return agent.EXIT_CONFIG
    except Final as problem:
        print(problem, file=sys.stderr)
        return agent.EXIT_FINAL
    except (CallFailed, WireError, EngineError) as problem:
        print(problem, file=sys.stderr)
        return agent.EXIT_UNEXPECTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="openface-gpu-worker", description="Runs Spaces on this machine.")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for name, act, text, has_json in (
        ("run", _run, "work: enroll if needed, take jobs, run them (what a service starts)", False),
        ("enroll", _enroll, "exchange the enrollment token for a credential, and exit", True),
        ("status", _status, "who this worker is and what it holds, from its data directory", True),
        ("leave", _leave, "stop this worker's apps, revoke its credential and forget it", True),
        ("doctor", _doctor, "check what this machine needs to run jobs", True),
    ):
        command = commands.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".")
        command.set_defaults(act=act, json=False)
        if has_json:
            command.add_argument("--json", action="store_true", help="answer as one JSON object")
        command.add_argument("-v", "--verbose", action="store_true", help="log details")
        for flag, (setting, meaning) in _FLAGS.items():
            command.add_argument(f"--{flag}", metavar="…", help=f"{meaning} [{setting}]")
    return parser


def _run(config: WorkerConfig, arguments: argparse.Namespace) -> int:
    return agent.run(config)


def _enroll(config: WorkerConfig, arguments: argparse.Namespace) -> int:
    with agent.DataDirLock(config.data_dir):
        # a port of 0 is known only to the running gateway: propose nothing then
        url = config.gateway_url(config.gateway_port) if config.public_url or config.gateway_port else None
        credential = agent.enroll(config, gateway_url=url)
    _say(
        arguments.json,
        {"worker_id": credential.worker_id, "name": credential.name},
        f"Enrolled as {credential.name} ({credential.worker_id}).",
    )
    return agent.EXIT_OK


def _status(config: WorkerConfig, arguments: argparse.Namespace) -> int:
    credential = CredentialStore(config.data_dir).load()
    records = Journal(config.data_dir).load_all() if (config.data_dir / "jobs").is_dir() else []
    try:
        with agent.DataDirLock(config.data_dir):
            running = False
    except ConfigError:
        running = True
    jobs = [
        {
            "job": record.facts.job,
            "lease": record.facts.lease,
            "space": f"{record.facts.owner}/{record.facts.repo}",
            "state": record.phase,
            "gpus": list(record.facts.gpus),
        }
        for record in records
    ]
    answer = {
        "worker_id": credential.worker_id if credential else None,
        "name": credential.name if credential else None,
        "running": running,
        "control_plane": config.url,
        "jobs": jobs,
    }
    lines = [
        f"{credential.name} ({credential.worker_id})" if credential else "Not enrolled.",
        f"Control plane: {config.url}",
        f"Worker process: {'running' if running else 'not running'}",
    ]
    lines += [f"{job['space']}: {job['state']} (lease {job['lease']})" for job in jobs] or ["No jobs."]
    _say(arguments.json, answer, "\n".join(lines))
    return agent.EXIT_OK


def _leave(config: WorkerConfig, arguments: argparse.Namespace) -> int:
    with agent.DataDirLock(config.data_dir):
        store = CredentialStore(config.data_dir)
        credential = store.load()
        if credential is None:
            raise ConfigError("This worker is not enrolled.")
        client = agent.control_plane(config)
        client.credential = credential
        client.leave()
        removed = _remove_apps(config, credential.worker_id)
        store.wipe(reason="This worker left.")
    _say(
        arguments.json,
        {"worker_id": credential.worker_id, "removed_apps": removed},
        f"{credential.name} has left; {removed} app(s) stopped and removed.",
    )
    return agent.EXIT_OK


def _remove_apps(config: WorkerConfig, worker_id: str) -> int:
    executor, journal = agent.make_executor(config, worker_id), Journal(config.data_dir)
    removed = 0
    for found in executor.inventory():
        runtime = executor.find(JobRecord(found.facts))
        if runtime is not None:
            runtime.stop(agent.LEAVE_GRACE_SECONDS)
            runtime.remove()
            removed += 1
    for record in journal.load_all():
        journal.drop(record.facts.lease)
    if isinstance(executor, ContainerEngine):
        executor.remove_stray_networks(set())
    return removed


def _doctor(config: WorkerConfig, arguments: argparse.Namespace) -> int:
    checks = [*examine(config), reach(config)]
    marks = {True: "ok ", False: "BAD", None: "?  "}
    lines = [
        f"{marks[check.ok]} {check.check}: {check.detail or ''}" + (f"\n      → {check.remedy}" if check.remedy else "")
        for check in checks
    ]
    _say(arguments.json, {"checks": [check.wire() for check in checks]}, "\n".join(lines))
    return agent.EXIT_UNEXPECTED if any(check.ok is False for check in checks) else agent.EXIT_OK


def _say(as_json: bool, answer: Mapping[str, object], text: str) -> None:
    print(json.dumps(answer, ensure_ascii=False) if as_json else text)


class _KeyValueFormatter(logging.Formatter):
    """``time level message key=value …`` from the record's extra fields."""

    _STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}

    def format(self, record: logging.LogRecord) -> str:
        extra = " ".join(f"{key}={value}" for key, value in vars(record).items() if key not in self._STANDARD)
        text = super().format(record)
        return f"{text}  {extra}" if extra else text


def _set_up_logging(verbose: bool) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_KeyValueFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
    logging.getLogger("urllib3").setLevel(logging.WARNING)
    logging.getLogger("docker").setLevel(logging.WARNING)


if __name__ == "__main__":
    sys.exit(main())
