"""The worker's only open port: health for the control plane, and the way to each running app.

``GET /healthz?nonce=…`` proves who we are. ``/lease/<lease id>/…`` with the right ``X-OpenFace-Runtime`` goes to that
lease's app. Everything else, and every wrong guess, gets the same empty 404. Runs in a thread and event loop of its
own, so neither Docker nor the control plane can slow it.

It relays bytes (relay.py) instead of using aiohttp's server and client: those rebuild requests and answers, and lose
raw targets, early refusals, close reasons and the bodies of refused handshakes on the way.
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import hmac
import json
import logging
import os
import threading
from dataclasses import dataclass, field
from typing import cast
from urllib.parse import parse_qs

from gpu_worker import open_files
from gpu_worker.app_connections import AppConnections
from gpu_worker.caller import Caller
from gpu_worker.credentials import Credential
from gpu_worker.errors import ConfigError
from gpu_worker.http_heads import Request
from gpu_worker.peer import INBOX_BYTES
from gpu_worker.relay import RUNTIME_HEADER, Exchange

logger = logging.getLogger(__name__)

BACKLOG = 1024  # connections that wait to be accepted: a Space's visitors may all come back at once
LONGEST_NONCE = 256  # characters
FILES_OF_A_CALLER = 2  # its connection and the app's
OTHER_FILES = 256  # for the rest of the worker: logs, calls, git, the engine
LEAST_CALLERS = 32
RETRY_SECONDS = 1.0
# Not yet: the machine has that address only once DHCP, Wi-Fi or a VPN is up, or somebody is about to free the port.
_PASSING = frozenset({errno.EADDRNOTAVAIL, errno.EADDRINUSE})
_LEASE = b"/lease/"
_LEASE_END = len(_LEASE) + 36  # an id is the usual form of a UUID, and nothing else leads anywhere


@dataclass
class _Route:
    apps: AppConnections
    runtime_token_sha256: str
    callers: set[Caller] = field(default_factory=set)  # that talk to the app


class Gateway:
    def __init__(self, host: str, port: int, *, max_callers_per_app: int = 4096) -> None:
        self._host, self._wanted_port = host, port
        self._credential: Credential | None = None
        self._routes: dict[bytes, _Route] = {}  # by the lease's id
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._callers: set[Caller] = set()
        # so that visitors never take the files that the worker needs to look after its apps
        self._most_callers = max(LEAST_CALLERS, (open_files.allowed() - OTHER_FILES) // FILES_OF_A_CALLER)
        self._most_per_app = min(max_callers_per_app, self._most_callers // 2)
        self._inbox = memoryview(bytearray(INBOX_BYTES))
        self.port = port
        """Where we listen, or will; 0 only before `start`."""
        self.trouble: str | None = None
        """Why it does not listen yet, as a sentence; it goes on trying."""

    # -- from any thread ---------------------------------------------------------------------------------------

    def start(self) -> None:
        """Listen; where the address is not there yet, or the port is taken, as soon as it can be had (see *trouble*).

        Raises ConfigError when that cannot change by itself, or when nobody could be told the port.
        """
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        except OSError as problem:
            if problem.errno not in _PASSING or not self.port:
                raise ConfigError(self._cannot(problem)) from problem
            self._note(problem)
            self._loop.call_soon_threadsafe(self._try_on)

    def reason(self, *_: object) -> str | None:
        """Why no job is taken: nobody would reach its app."""
        return self.trouble

    def stop(self) -> None:
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(5)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        self._loop.close()

    def identify(self, credential: Credential) -> None:
        """From now on /healthz answers for this worker."""
        self._credential = credential

    def open(self, lease: str, address: tuple[str, int], runtime_token_sha256: str) -> None:
        """Make the app of *lease* reachable for who has its runtime token."""
        present = self._routes.get(lease.encode())
        if present is None or present.apps.address != address:
            self.close(lease)
            self._routes[lease.encode()] = _Route(AppConnections(address, self._inbox), runtime_token_sha256)
        else:
            present.runtime_token_sha256 = runtime_token_sha256

    def close(self, lease: str) -> None:
        """Nobody reaches the app any more; what is under way to it breaks."""
        route = self._routes.pop(lease.encode(), None)
        if route is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._break_off, route)

    # -- in the loop -------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(self._caller, self._host, self._wanted_port, backlog=BACKLOG)
        self.port = int(self._server.sockets[0].getsockname()[1])

    def _try_on(self) -> None:
        task = self._loop.create_task(self._listen_when_possible())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _listen_when_possible(self) -> None:
        while self.trouble is not None:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                await self._listen()
            except OSError as problem:
                self._note(problem)
            else:
                self.trouble = None
                logger.info("gateway listens", extra={"action": "gateway_listens", "port": self.port})

    def _note(self, problem: OSError) -> None:
        sentence = self._cannot(problem)
        if sentence != self.trouble:
            logger.warning("gateway waits", extra={"action": "gateway_waits", "problem": sentence})
        self.trouble = sentence

    def _cannot(self, problem: OSError) -> str:
        # asyncio words these errors itself, at length
        why = os.strerror(problem.errno) if problem.errno else str(problem)
        return f"The gateway cannot listen on {self._host} port {self._wanted_port}: {why}."

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=2)
        for caller in list(self._callers):
            caller.abort()
        for route in self._routes.values():
            route.apps.close()
        await asyncio.sleep(0.01)  # so that what was closed is told to the transports, in the loop's next turns

    def _caller(self) -> asyncio.BaseProtocol:
        if len(self._callers) >= self._most_callers:
            return _OneTooMany()
        caller = Caller(self._answer, self._callers.discard, self._inbox)
        self._callers.add(caller)
        return caller.peer

    def _break_off(self, route: _Route) -> None:
        for caller in list(route.callers):
            caller.abort()
        route.apps.close()

    def _answer(self, caller: Caller, request: Request) -> None:
        target = request.target
        if target.startswith(b"/healthz"):
            self._health(caller, request)
            return
        is_lease = target.startswith(_LEASE) and target[_LEASE_END : _LEASE_END + 1] == b"/"
        route = self._routes.get(target[len(_LEASE) : _LEASE_END]) if is_lease else None
        if route is None or not _may_enter(request, route):
            caller.say(request, 404, b"Not Found")
            return
        if len(route.callers) >= self._most_per_app:
            caller.say(request, 503, b"Service Unavailable", reason=b"too-many-callers")
            return
        exchange = Exchange(caller, request, target[_LEASE_END:], route.apps)
        caller.begin(exchange, route.callers)
        exchange.start()

    def _health(self, caller: Caller, request: Request) -> None:
        path, _, query = request.target.partition(b"?")
        nonce = parse_qs(query.decode("latin-1")).get("nonce", [""])[0]
        asked = path == b"/healthz" and request.method in (b"GET", b"HEAD") and 0 < len(nonce) <= LONGEST_NONCE
        if self._credential is None or not asked:
            caller.say(request, 404, b"Not Found")
            return
        proof = {"worker_id": self._credential.worker_id, "proof": self._credential.prove(f"healthz:{nonce}")}
        caller.say(request, 200, b"OK", body=json.dumps(proof).encode(), reason=b"health")


class _OneTooMany(asyncio.Protocol):
    """A connection for which there is no file left."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


def _may_enter(request: Request, route: _Route) -> bool:
    tokens = request.values(RUNTIME_HEADER)
    if len(tokens) != 1:
        return False
    return hmac.compare_digest(hashlib.sha256(tokens[0]).hexdigest(), route.runtime_token_sha256)
