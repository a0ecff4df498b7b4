"""The command ``openface-gpu-worker``: which commands there are, their flags, and their exit codes."""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from gpu_worker import __version__, agent, cli_disk, cli_inspect, cli_owner
from gpu_worker.answer import EXIT_CONFIG, Answer, Failure
from gpu_worker.config import WorkerConfig, load
from gpu_worker.errors import CallFailed, ConfigError, EngineError, Final, WireError
from gpu_worker.settings_file import bring

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


EXIT_CODES = """exit codes:
  0   done, or stopped as asked
  1   something is wrong: an unexpected problem, a bad check, no answer
  2   a setting or an argument cannot work; a sentence says which
  78  final: this worker was revoked, or another process uses its credential"""


@dataclass(frozen=True)
class Command:
    name: str
    does: str
    act: Callable[[WorkerConfig, argparse.Namespace], Answer] | None
    """None: the command that works until it is stopped."""
    local: bool = False
    """It calls nobody, so it needs no address of the control plane."""


COMMANDS = (
    Command("run", "work: enroll if needed, take jobs, run them (what a service starts)", None),
    Command("enroll", "exchange the enrollment token for a credential, and exit", cli_inspect.enroll_now),
    Command("status", "who this worker is, what it holds, how it stands", cli_inspect.status, local=True),
    Command("doctor", "check what this machine needs to run jobs", cli_inspect.doctor, local=True),
    Command("verify", "check that a running worker keeps its promises, from end to end", cli_inspect.verify),
    Command("pause", "take no more jobs, until resume or a time", cli_owner.pause, local=True),
    Command("resume", "end a pause", cli_owner.resume, local=True),
    Command("prune", "remove this worker's images that no job needs now", cli_disk.prune, local=True),
    Command("leave", "revoke this worker's credential and remove what is its own here", cli_disk.leave),
)


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    try:
        arguments = _parser().parse_args(words)
    except _WrongArgument as problem:
        print(problem, file=sys.stderr)
        return _failed(Failure("wrong_argument", problem.sentence, EXIT_CONFIG), json_too="--json" in words)
    _set_up_logging(arguments.verbose)
    overrides = {setting: getattr(arguments, flag.replace("-", "_")) for flag, (setting, _) in _FLAGS.items()}
    command: Command = arguments.command
    try:
        bring(os.environ)
        config = load(os.environ, overrides, local=command.local)
        if command.act is None:
            return agent.run(config)
        answer = command.act(config, arguments)
    except (ConfigError, Final, CallFailed, WireError, EngineError) as problem:
        failure = Failure.of(problem)
        print(failure.sentence, file=sys.stderr)
        return _failed(failure, json_too=arguments.json)
    print(json.dumps(answer.facts, ensure_ascii=False) if arguments.json else answer.text)
    return answer.code


def _failed(failure: Failure, *, json_too: bool) -> int:
    if json_too:
        print(json.dumps(failure.wire(), ensure_ascii=False))
    return failure.exit


class _WrongArgument(Exception):
    """The arguments cannot work. As text: how the command is used, and what is wrong."""

    def __init__(self, parser: argparse.ArgumentParser, sentence: str) -> None:
        super().__init__(f"{parser.format_usage()}{parser.prog}: error: {sentence}")
        self.sentence = sentence


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        """Instead of ending the process here: who asked for JSON gets some."""
        raise _WrongArgument(self, message)


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="openface-gpu-worker",
        description="Runs Spaces on this machine.",
        epilog=EXIT_CODES,
        formatter_class=formatter,
    )
    parser.add_argument("--version", action="version", version=__version__)
    subparsers = parser.add_subparsers(required=True, metavar="command")
    for command in COMMANDS:
        text = command.does[0].upper() + command.does[1:] + "."
        sub = subparsers.add_parser(
            command.name, help=command.does, description=text, epilog=EXIT_CODES, formatter_class=formatter
        )
        sub.set_defaults(command=command, json=False)
        _add_own_flags(command.name, sub)
        if command.act is not None:
            sub.add_argument("--json", action="store_true", help="answer as one JSON object")
        sub.add_argument("-v", "--verbose", action="store_true", help="log details")
        settings = sub.add_argument_group(
            "settings", "Each has a variable, also read from /etc/openface-gpu-worker/worker.env; the flag wins."
        )
        for flag, (setting, meaning) in _FLAGS.items():
            settings.add_argument(f"--{flag}", metavar="…", help=f"{meaning} [{setting}]")
    return parser


def _add_own_flags(name: str, parser: argparse.ArgumentParser) -> None:
    if name in ("doctor", "verify"):
        parser.add_argument(
            "--test-image", metavar="NAME", help="an image that is here, for the container that looks for its GPU"
        )
    if name == "doctor":
        parser.add_argument("--test-device", action="store_true", help="start a container for each GPU, and look")
    if name == "pause":
        parser.add_argument("--reason", metavar="TEXT", help="shown to operators on the fleet page")
        parser.add_argument("--now", action="store_true", help="stop running apps too; they go back to the line")
        parser.add_argument("--for", dest="for_", metavar="TIME", help="how long: 30m, 2h, 1d12h")
        parser.add_argument("--until", metavar="TIME", help="until when: 18:00, or 2026-12-24T18:00")
    if name == "prune":
        parser.add_argument("--dry-run", action="store_true", help="only say what would go")
        parser.add_argument("--all", action="store_true", help="also the last image of each Space that ran")
    if name == "leave":
        data = parser.add_mutually_exclusive_group()
        data.add_argument("--delete-data", action="store_true", help="remove what Spaces have written here, too")
        data.add_argument("--keep-data", action="store_true", help="leave it with Docker, and say its names")


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
