"""The way to the control plane, and its way to us."""

from __future__ import annotations

import contextlib
import json
import time
from datetime import datetime
from email.utils import parsedate_to_datetime

import requests

from gpu_worker.config import WorkerConfig
from gpu_worker.data_dir import in_use
from gpu_worker.errors import ConfigError
from gpu_worker.protocol import DoctorCheck
from gpu_worker.reasons import reason_of
from gpu_worker.self_report import SelfReportFile
from gpu_worker.verification import gateway_as_told

REACH_SECONDS = 5.0
# A call that needs no credential to be answered in the protocol's own way: with an error that has a code.
PROBE_PATH = "/api/v1/workers/register"
# The control plane's own word for its time; a proxy on the way may have put its own clock's into `Date`.
TIME_HEADER = "X-OpenFace-Time"
# Nothing here compares clocks, but certificates and the times in logs do.
CLOCK_SECONDS = 60.0


def network(config: WorkerConfig) -> list[DoctorCheck]:
    """All checks of the way there and back."""
    if not config.url:
        remedy = "Set it to the address of the control plane, for example http://openface.lan:8090."
        return [DoctorCheck("control_plane", False, "OPENFACE_URL is not set", remedy)]
    check, answer = _ask(config)
    return [check, *(_clock(answer) if answer is not None else []), *_gateway(config)]


def reach(config: WorkerConfig) -> DoctorCheck:
    """Whether the control plane answers at all from here."""
    return network(config)[0]


def _ask(config: WorkerConfig) -> tuple[DoctorCheck, requests.Response | None]:
    name, url = "control_plane", config.url
    verify = str(config.verify_tls) if not isinstance(config.verify_tls, bool) else config.verify_tls
    asked_at = time.monotonic()
    try:
        answer = requests.get(
            f"{url}{PROBE_PATH}", timeout=REACH_SECONDS, verify=verify, allow_redirects=False, stream=True
        )
        took = time.monotonic() - asked_at
        body = answer.raw.read(4096, decode_content=True)
        answer.close()
    except requests.exceptions.SSLError as problem:
        return _untrusted(url, problem), None
    except requests.RequestException as problem:
        return DoctorCheck(name, False, f"{url} does not answer: {reason_of(problem)}", _remedy(problem)), None
    except OSError as problem:  # a bundle of authorities that cannot be read, or an answer that broke off
        return DoctorCheck(name, False, f"{url} cannot be asked: {problem}", "Look at OPENFACE_CA_FILE."), None
    if not _is_ours(body):
        detail = f"something answers at {url} (HTTP {answer.status_code}), but it is not OpenFace"
        return DoctorCheck(name, False, detail, "Check OPENFACE_URL: it is the portal's address, port 8090."), None
    unsafe = "; its certificate is not checked (OPENFACE_VERIFY_TLS)" if not config.verify_tls else ""
    return DoctorCheck(name, True, f"{url} answers in {took * 1000:.0f} ms{unsafe}"), answer


def _untrusted(url: str, problem: requests.exceptions.SSLError) -> DoctorCheck:
    return DoctorCheck(
        "control_plane",
        False,
        f"the certificate of {url} is not trusted here: {reason_of(problem)}",
        "Set OPENFACE_CA_FILE to the certificate authority's file, and use the name that the certificate is for.",
    )


def _is_ours(body: bytes) -> bool:
    try:
        return isinstance(json.loads(body).get("code"), str)
    except (ValueError, AttributeError):
        return False


def _remedy(problem: requests.RequestException) -> str:
    if isinstance(problem, requests.exceptions.Timeout):
        return "Is a firewall in between? This machine only calls out: to that address and port."
    return "Check OPENFACE_URL, that the control plane runs, and that this machine may reach that address and port."


def _clock(answer: requests.Response) -> list[DoctorCheck]:
    """Whether this machine's clock is near the control plane's; nothing where that tells no time (an older one)."""
    theirs = _time_of(answer)
    if theirs is None:
        return []
    off = time.time() - theirs
    if abs(off) <= CLOCK_SECONDS:
        return [DoctorCheck("clock", True, "within a minute of the control plane's")]
    direction = "ahead of" if off > 0 else "behind"
    return [
        DoctorCheck(
            "clock",
            None,
            f"{abs(off) / 60:.0f} minutes {direction} the control plane's: jobs run all the same, but certificates may "
            "be refused and the worker's log tells other times",
            "Let the machine set its clock (timedatectl set-ntp true).",
        )
    ]


def _time_of(answer: requests.Response) -> float | None:
    """When the control plane says that it answered; None where it does not, or nobody can read it."""
    for name, read in ((TIME_HEADER, datetime.fromisoformat), ("Date", parsedate_to_datetime)):
        with contextlib.suppress(KeyError, ValueError, TypeError, OverflowError):
            return read(answer.headers[name]).timestamp()
    return None


def _gateway(config: WorkerConfig) -> list[DoctorCheck]:
    """What the control plane saw when it called us; nothing while no worker runs here to be told."""
    try:
        told = SelfReportFile(config.data_dir).read() if in_use(config.data_dir) else None
    except ConfigError:
        told = None
    return [] if told is None else [gateway_as_told(told)]
