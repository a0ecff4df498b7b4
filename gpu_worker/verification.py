"""Checks of a worker that runs: is what it promises true now, from end to end?

The doctor looks at the machine; these look at the worker on it. None of them opens a session or asks for a job, so
they may run beside the worker at any time.
"""

from __future__ import annotations

import hmac
import json
import secrets

import requests

from gpu_worker.client import ControlPlane
from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import Credential, CredentialStore
from gpu_worker.data_dir import in_use
from gpu_worker.enrollment import control_plane
from gpu_worker.errors import CallFailed, CredentialInvalid, Final
from gpu_worker.protocol import DoctorCheck
from gpu_worker.self_report import SelfReport, SelfReportFile

HEALTH_SECONDS = 5.0
GATEWAY_REMEDIES = {
    "refused": "Is that address this machine's, and nothing else listening there? Look at WORKER_PUBLIC_URL.",
    "timeout": "Open that port in this machine's firewall, for the control plane only.",
    "proposed": "Ask an operator to approve the address (admin, Workers), or to issue the token with --gateway.",
}
NO_ADDRESS = "Set WORKER_PUBLIC_URL to this machine's address as the control plane reaches it, and restart the worker."


def verify_live(config: WorkerConfig) -> list[DoctorCheck]:
    """Credential, process, heartbeat, gateway; in the order in which one needs the other."""
    credential = CredentialStore(config.data_dir).load()
    if credential is None:
        return [DoctorCheck("credential", False, "this worker is not enrolled", "Run enroll, or run.")]
    checks = [_credential(control_plane(config), credential)]
    report = SelfReportFile(config.data_dir).read() if in_use(config.data_dir) else None
    if report is None:
        return [*checks, DoctorCheck("worker", False, "no worker process runs here", "Start it (run).")]
    checks.append(DoctorCheck("worker", True, f"process {report.pid}, version {report.version}"))
    return [*checks, _heartbeat(report), _takes_jobs(report), _own_gateway(report, credential), gateway_as_told(report)]


def _credential(client: ControlPlane, credential: Credential) -> DoctorCheck:
    """Opens the signal stream and closes it: the one call that needs a valid credential and changes nothing."""
    client.credential = credential
    name = "credential"
    try:
        next(client.signals())
    except (CredentialInvalid, Final) as refusal:
        return DoctorCheck(
            name, False, f"the control plane refuses it: {refusal}", "Ask an operator for a new token (--replace)."
        )
    except CallFailed as problem:
        return DoctorCheck(name, None, f"could not be checked: {problem}")
    finally:
        client.close()
    return DoctorCheck(name, True, f"valid: {credential.name} ({credential.worker_id})")


def _heartbeat(report: SelfReport) -> DoctorCheck:
    if report.answers:
        return DoctorCheck("heartbeat", True, f"answered; this worker is {report.standing}")
    return DoctorCheck(
        "heartbeat", False, f"not answered: {report.problem or 'no answer yet'}", "Look at the worker's log."
    )


def _takes_jobs(report: SelfReport) -> DoctorCheck:
    """What somebody wants (the owner's pause, an operator's drain) is nothing bad; but who verifies wants to know."""
    name = "takes_jobs"
    if report.paused is not None and report.paused_by_owner:
        return DoctorCheck(name, None, f"paused by the owner of this machine: {report.paused}")
    if report.paused is not None:
        return DoctorCheck(name, False, report.paused, "It goes on by itself when that is over; see the other checks.")
    if report.standing != "open":
        return DoctorCheck(name, None, f"no: an operator has set it to {report.standing}")
    return DoctorCheck(name, True, f"CPU jobs only: {report.no_gpu_jobs}" if report.no_gpu_jobs else "yes")


def _own_gateway(report: SelfReport, credential: Credential) -> DoctorCheck:
    """What answers under our public address proves that it is this worker; unknown where we cannot call ourselves."""
    if report.gateway_url is None:
        return DoctorCheck("gateway_here", None, "no address was proposed (WORKER_PUBLIC_URL), so none can be called")
    nonce = secrets.token_hex(16)
    try:
        answer = requests.get(
            f"{report.gateway_url}/healthz", params={"nonce": nonce}, timeout=HEALTH_SECONDS, allow_redirects=False
        )
        proof = str(json.loads(answer.content[:4096]).get("proof"))
    except requests.RequestException as problem:
        detail = (
            f"{report.gateway_url} cannot be called from this machine ({type(problem).__name__}); some routers do that"
        )
        return DoctorCheck("gateway_here", None, detail)
    except (ValueError, AttributeError):
        proof = ""
    if hmac.compare_digest(proof, credential.prove(f"healthz:{nonce}")):
        return DoctorCheck("gateway_here", True, f"{report.gateway_url} is this worker")
    return DoctorCheck(
        "gateway_here",
        False,
        f"something else answers at {report.gateway_url}",
        "Look at WORKER_PUBLIC_URL, and at what listens on that port.",
    )


def gateway_as_told(report: SelfReport) -> DoctorCheck:
    """The control plane's own view; it looks every minute."""
    name, seen = "gateway", report.gateway
    if report.gateway_trouble is not None:
        remedy = "It tries again by itself. Does this machine have that address, and is the port free (ss -ltnp)?"
        return DoctorCheck(name, False, report.gateway_trouble, remedy)
    if seen == "ok" and report.gateway_detail is not None:  # at another address than the one that is proposed
        return DoctorCheck(name, None, report.gateway_detail, "Set WORKER_PUBLIC_URL to an address that others reach.")
    if seen == "ok":
        return DoctorCheck(name, True, f"the control plane reaches {report.gateway_address or 'it'}")
    if seen is None and report.gateway_detail is None:
        return DoctorCheck(name, None, "the control plane has not looked yet; it does every minute")
    detail = report.gateway_detail or f"the control plane called {report.gateway_address or 'it'}: {seen}"
    return DoctorCheck(name, False, detail, GATEWAY_REMEDIES.get(seen or "", NO_ADDRESS))
