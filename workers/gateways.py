"""The address under which the control plane reaches a worker: which one is approved, and by whom.

No request of ours goes to an address that a worker made up. An operator names it with the enrollment token, or the
first proposal is taken if it is the very address the enrollment came from; everything else waits for an operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import urlsplit

from django.conf import settings

from workers.addresses import client_address
from workers.models import Worker

MAX_LENGTH = 255  # of the column


@dataclass(frozen=True)
class Verdict:
    """What becomes of a proposed address: approved, waits (`proposed`), or refused with a sentence."""

    approved: str = ""
    proposed: str = ""
    refusal: str = ""


def normalise(url: str) -> str:
    """Return the address without a trailing slash; raise ValueError with a sentence where it is none."""
    if len(url) > MAX_LENGTH:
        raise ValueError(f"The gateway address is longer than {MAX_LENGTH} characters.")
    if any(character.isspace() or not character.isprintable() for character in url):
        raise ValueError("The gateway address holds a blank or a control character.")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"{url} is not an address: its port or host is not valid.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url} is not an http:// or https:// address.")
    if parts.username or parts.password or parts.query or parts.fragment or port == 0:
        raise ValueError("A gateway address is scheme, host, port and path, nothing else.")
    return url.rstrip("/")


def judge(url: str | None, *, enrolled_from: str | None, local: bool, first: bool) -> Verdict:
    """Decide about an address that a worker proposes. `first`: none was approved or proposed before."""
    if not url:
        return Verdict()
    try:
        address = normalise(url)
    except ValueError as error:
        return Verdict(refusal=str(error))
    refusal = _refusal(address, local=local)
    if refusal:
        return Verdict(refusal=refusal)
    host = urlsplit(address).hostname or ""
    came_from_there = bool(enrolled_from) and client_address(host) == client_address(enrolled_from or "")
    if first and (came_from_there or (local and _is_loopback(host))):
        return Verdict(approved=address)
    return Verdict(proposed=address)


def apply_proposal(worker: Worker, url: str | None) -> list[str]:
    """Put the proposal's outcome on the (locked) row and return the names of the fields that changed."""
    if worker.gateway_fixed or not url or url.rstrip("/") == worker.gateway_url:
        if not worker.gateway_proposed_url:
            return []
        worker.gateway_proposed_url = ""
        return ["gateway_proposed_url"]
    first = not worker.gateway_url and not worker.gateway_proposed_url
    verdict = judge(url, enrolled_from=worker.enrolled_from, local=worker.local, first=first)
    if verdict.approved:
        worker.gateway_url, worker.gateway_proposed_url = verdict.approved, ""
        worker.gateway_status, worker.gateway_detail = Worker.Gateway.UNKNOWN, ""
    elif verdict.proposed:
        worker.gateway_proposed_url = verdict.proposed
        if not worker.gateway_url:
            worker.gateway_status = Worker.Gateway.PROPOSED
            worker.gateway_detail = "An operator has to approve this address."
    elif not worker.gateway_url:
        worker.gateway_proposed_url = ""
        worker.gateway_status, worker.gateway_detail = Worker.Gateway.REFUSED, verdict.refusal[:255]
    else:  # kept, and never offered for approval, so that operators and the worker are told why (refused_proposal)
        worker.gateway_proposed_url = url if len(url) <= MAX_LENGTH else ""
    return ["gateway_url", "gateway_proposed_url", "gateway_status", "gateway_detail"]


def refused_proposal(worker: Worker) -> str:
    """Why the address that it proposes beside its approved one may not be; "" where it proposes none, or it may."""
    if not worker.gateway_proposed_url:
        return ""
    return judge(worker.gateway_proposed_url, enrolled_from=None, local=worker.local, first=False).refusal


def on_the_wire(worker: Worker) -> str | None:
    """Return what the worker is told of its gateway: ok, refused, timeout, proposed, or None (not checked yet)."""
    if worker.gateway_proposed_url and not refused_proposal(worker):
        return "proposed"
    return None if worker.gateway_status == Worker.Gateway.UNKNOWN else str(worker.gateway_status)


def because(worker: Worker) -> str | None:
    """Why the worker's gateway does not serve, in a sentence for its owner; None: it does, or nobody has looked yet."""
    if refusal := refused_proposal(worker):
        return f"{worker.gateway_proposed_url} is refused: {refusal} {worker.gateway_url} goes on counting."
    if worker.gateway_proposed_url:
        waits = f"{worker.gateway_proposed_url} waits until an operator approves it."
        return f"{waits} Until then {worker.gateway_url} counts." if worker.gateway_url else waits
    if not worker.gateway_url and worker.gateway_status == Worker.Gateway.UNKNOWN:
        return "This worker has no gateway address: set WORKER_PUBLIC_URL on it."
    return None if worker.gateway_status == Worker.Gateway.OK else worker.gateway_detail or None


def _refusal(address: str, *, local: bool) -> str:
    """Why a worker may not propose this address, or "". An operator's own --gateway is not asked this."""
    parts = urlsplit(address)
    host = (parts.hostname or "").rstrip(".")
    port = parts.port or (443 if parts.scheme == "https" else 80)
    loopback = _is_loopback(host)
    if loopback and not local:
        return f"{host} is this machine as seen from itself: set WORKER_PUBLIC_URL to an address others can reach."
    if _is_link_local(host):
        return f"{host} is a link-local address, which can mean another machine on every network."
    if port in _own_ports() and (loopback or host in _own_hosts()):
        return f"Port {port} of {host} is the control plane itself."
    return ""


def _own_urls() -> list[str]:
    return [
        url for url in (settings.PUBLIC_BASE_URL, settings.OPENFACE_RUNTIME_ORIGIN, settings.OPENFACE_DATA_URL) if url
    ]


def _own_ports() -> set[int]:
    ports = {8090, int(settings.OPENFACE_DATA_PORT), int(settings.DATABASES["default"].get("PORT") or 5432)}
    for url in _own_urls():
        # The runtime origin may be a template like https://{space}.run.example: its port is still a port.
        parts = urlsplit(url)
        ports.add(parts.port or (443 if parts.scheme == "https" else 80))
    return ports


def _own_hosts() -> set[str]:
    return {host for url in _own_urls() if (host := urlsplit(url).hostname)}


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        address = ip_address(client_address(host) or host)
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified


def _is_link_local(host: str) -> bool:
    try:
        return ip_address(client_address(host) or host).is_link_local
    except ValueError:
        return False
