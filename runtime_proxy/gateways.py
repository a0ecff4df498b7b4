"""Asks the workers' gateways whether they can be reached from here, and whether they are who they should be.

Service jobs wait for a reachable gateway, so a fresh worker is asked as soon as it has registered, all others
regularly. Only approved addresses are called, and no redirect is followed. Two processes that both ask do no harm.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import secrets
import uuid
from dataclasses import dataclass

import aiohttp
from django.apps import apps
from django.conf import settings
from django.db import transaction
from django.db.models.functions import Now
from yarl import URL

from jobs import notices
from runtime_proxy.database import in_database
from runtime_proxy.entrance import OUTAGES

logger = logging.getLogger(__name__)

MAX_SECONDS_BETWEEN = 60.0
ANSWER_SECONDS = 5.0
MAX_ANSWER_BYTES = 4096
AT_A_TIME = 32

OK, REFUSED, TIMEOUT = "ok", "refused", "timeout"


@dataclass(frozen=True, slots=True)
class Gateway:
    """A worker's approved gateway, and what its right answer is made with."""

    worker_id: uuid.UUID
    url: str
    credential_hash: str

    def proof(self, nonce: str) -> str:
        """What the gateway must answer to the nonce: only the worker and we can make it."""
        key = bytes.fromhex(self.credential_hash)
        return hmac.new(key, f"healthz:{nonce}".encode(), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class Finding:
    """How it went: ok, refused or timeout, and a sentence."""

    status: str
    detail: str = ""


def seconds_between() -> float:
    """Return how often all gateways are asked; scaled down with the heartbeat in tests and the demo."""
    return min(MAX_SECONDS_BETWEEN, 4 * float(settings.OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS))


async def keep_checking() -> None:
    """Ask a worker's gateway when it has registered, and all of them regularly. Runs until it is cancelled."""
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False) as session:
        await _keep_checking(session)


async def _keep_checking(session: aiohttp.ClientSession) -> None:
    loop = asyncio.get_running_loop()
    next_round = loop.time()
    async with notices.mailbox({"gateway"}) as box:
        while True:
            notice = await box.get(max(0.0, next_round - loop.time()))
            try:
                if notice is not None and notice.kind == "gateway":
                    await check(session, await in_database(approved, notice.ids.get("worker")))
                else:
                    next_round = loop.time() + seconds_between()
                    await check(session, await in_database(approved))
            except OUTAGES:
                logger.warning("gateways not checked: the database is away", extra={"action": "gateway_check_skipped"})
                next_round = loop.time() + seconds_between()


async def check(session: aiohttp.ClientSession, gateways: list[Gateway]) -> None:
    """Ask these gateways, some at a time, and write down what they said."""
    slots = asyncio.Semaphore(AT_A_TIME)

    async def one(gateway: Gateway) -> None:
        async with slots:
            finding = await ask(session, gateway)
        await in_database(write_down, gateway, finding)

    await asyncio.gather(*(one(gateway) for gateway in gateways))


async def ask(session: aiohttp.ClientSession, gateway: Gateway) -> Finding:
    """Ask one gateway for the proof that it is this worker's."""
    nonce = secrets.token_hex(16)
    address = URL(f"{gateway.url.rstrip('/')}/healthz?nonce={nonce}", encoded=True)
    try:
        async with asyncio.timeout(ANSWER_SECONDS), session.get(address, allow_redirects=False) as response:
            status, body = response.status, await response.content.read(MAX_ANSWER_BYTES)
    except TimeoutError:
        return Finding(TIMEOUT, f"{gateway.url} did not answer within {ANSWER_SECONDS:.0f} s: a firewall may drop it.")
    except (aiohttp.ClientConnectorError, ConnectionError):
        port = address.port
        return Finding(REFUSED, f"TCP {port} of {address.host} is closed towards the control plane.")
    except (aiohttp.ClientError, OSError, ValueError):
        return Finding(REFUSED, f"{gateway.url} broke the connection.")
    if status != 200:
        return Finding(REFUSED, f"{gateway.url} answered with status {status} instead of the worker's proof.")
    try:
        content = json.loads(body)
        worker, proof = str(content["worker_id"]), str(content["proof"])
    except (ValueError, KeyError, TypeError):
        return Finding(REFUSED, f"Something else than a worker answers at {gateway.url}.")
    if worker != str(gateway.worker_id) or not hmac.compare_digest(proof.encode(), gateway.proof(nonce).encode()):
        return Finding(REFUSED, f"Another worker answers at {gateway.url}, or one with an old credential.")
    return Finding(OK)


def approved(worker_id: str | None = None) -> list[Gateway]:
    """Return the gateways that may be called: all, or one worker's. One query."""
    workers = apps.get_model("workers", "Worker").objects.filter(revoked_at=None).exclude(gateway_url="")
    if worker_id is not None:
        workers = workers.filter(pk=worker_id)
    rows = workers.exclude(credential_hash="").values_list("pk", "gateway_url", "credential_hash")
    return [Gateway(*row) for row in rows]


def write_down(gateway: Gateway, finding: Finding) -> None:
    """Write the finding unless address or credential are others by now.

    Told are waiting jobs, of a way that opened, and open pages, of one that is not what it was.
    """
    worker = apps.get_model("workers", "Worker").objects.filter(
        pk=gateway.worker_id, gateway_url=gateway.url, credential_hash=gateway.credential_hash, revoked_at=None
    )
    with transaction.atomic():
        changed = worker.exclude(gateway_status=finding.status).exists()
        worker.update(gateway_status=finding.status, gateway_detail=finding.detail[:255], gateway_checked_at=Now())
        if changed:
            notices.publish("reach", worker=gateway.worker_id)
        if changed and finding.status == OK:
            notices.publish("work", worker=gateway.worker_id)
