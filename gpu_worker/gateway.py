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
import re
import threading
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from gpu_worker.credentials import Credential
from gpu_worker.errors import ConfigError
from gpu_worker.http_framing import BadMessage, Head, parse_request, write_head
from gpu_worker.peer import Peer, PeerGone
from gpu_worker.relay import RUNTIME_HEADER, Destination, NoAnswer, Relay

logger = logging.getLogger(__name__)

IDLE_SECONDS = 120.0  # between requests of one connection
FIRST_HEAD_SECONDS = 10.0
LONGEST_NONCE = 256  # characters
RETRY_SECONDS = 1.0
# Not yet: the machine has that address only once DHCP, Wi-Fi or a VPN is up, or somebody is about to free the port.
_PASSING = frozenset({errno.EADDRNOTAVAIL, errno.EADDRINUSE})
MADE_HERE = b"X-OpenFace-Gateway"
"""On answers of the gateway itself; an app cannot send it. Tells the data plane "not the app's words"."""
_LEASE_PATH = re.compile(rb"/lease/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(/.*)", re.DOTALL)


@dataclass
class _Route:
    place: Destination
    runtime_token_sha256: str
    tasks: set[asyncio.Task[None]] = field(default_factory=set)


class Gateway:
    def __init__(self, host: str, port: int) -> None:
        self._host, self._wanted_port = host, port
        self._credential: Credential | None = None
        self._routes: dict[str, _Route] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="gateway", daemon=True)
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._relay = Relay()
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
        present = self._routes.get(lease)
        place = Destination(lease, *address)
        if present is None or present.place != place:
            self.close(lease)
            self._routes[lease] = _Route(place, runtime_token_sha256)
        else:
            present.runtime_token_sha256 = runtime_token_sha256

    def close(self, lease: str) -> None:
        """Nobody reaches the app any more; what is under way to it breaks."""
        route = self._routes.pop(lease, None)
        if route is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._break_off, route)

    # -- in the loop -------------------------------------------------------------------------------------------

    async def _listen(self) -> None:
        self._server = await self._loop.create_server(lambda: Peer(self._accept), self._host, self._wanted_port)
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
        self._relay.close()
        await asyncio.sleep(0.01)  # closed transports say goodbye in the loop's next turns
        self._relay.close()
        await asyncio.sleep(0)  # so that what was closed is told to the transports

    def _break_off(self, route: _Route) -> None:
        for task in route.tasks:
            task.cancel()
        self._relay.forget(route.place)

    def _accept(self, client: Peer) -> None:
        task = self._loop.create_task(self._serve(client))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, client: Peer) -> None:
        """Requests of one connection, one after the other."""
        patience = FIRST_HEAD_SECONDS
        try:
            while True:
                async with asyncio.timeout(patience):
                    head = await client.read_head()
                if head is None or not await self._answer(client, parse_request(head)):
                    client.close()
                    return
                patience = IDLE_SECONDS
        except (TimeoutError, PeerGone, BadMessage, asyncio.CancelledError) as problem:
            logger.debug("connection broken off", extra={"action": "gateway_broken", "problem": str(problem)})
            client.abort()
        except Exception:
            # the outermost net of a connection: one odd request must not be silent, nor touch the others
            logger.exception("gateway failed", extra={"action": "gateway_failed"})
            client.abort()

    async def _answer(self, client: Peer, request: Head) -> bool:
        path, _, query = request.target.partition(b"?")
        if path == b"/healthz" and request.method in (b"GET", b"HEAD"):
            return await self._health(client, request, query)
        match = _LEASE_PATH.fullmatch(request.target)
        route = self._routes.get(match[1].decode()) if match else None
        if match is None or route is None or not _may_enter(request, route):
            return await _say(client, request, 404, b"Not Found")
        task = asyncio.current_task()
        assert task is not None
        route.tasks.add(task)
        try:
            return await self._relay.carry(client, request, match[2], route.place)
        except NoAnswer as problem:
            logger.debug("no answer", extra={"action": "gateway_no_answer", "problem": str(problem)})
            return await _say(client, request, 502, b"Bad Gateway", reason=problem.reason)
        finally:
            route.tasks.discard(task)

    async def _health(self, client: Peer, request: Head, query: bytes) -> bool:
        nonce = parse_qs(query.decode("latin-1")).get("nonce", [""])[0]
        if self._credential is None or not 0 < len(nonce) <= LONGEST_NONCE:
            return await _say(client, request, 404, b"Not Found")
        proof = {"worker_id": self._credential.worker_id, "proof": self._credential.prove(f"healthz:{nonce}")}
        return await _say(client, request, 200, b"OK", body=json.dumps(proof).encode(), reason=b"health")


def _may_enter(request: Head, route: _Route) -> bool:
    tokens = request.values(RUNTIME_HEADER)
    if len(tokens) != 1:
        return False
    return hmac.compare_digest(hashlib.sha256(tokens[0]).hexdigest(), route.runtime_token_sha256)


async def _say(
    client: Peer, request: Head, status: int, phrase: bytes, *, body: bytes = b"", reason: bytes = b"refused"
) -> bool:
    """An answer of our own. The connection ends where the request has a body that we do not want to read."""
    has_body = bool(request.values(b"content-length") or request.values(b"transfer-encoding"))
    keep = request.keeps_alive and not has_body and request.upgrade is None
    fields = [(b"Content-Type", b"application/json")] if body else []
    fields += [(b"Content-Length", b"%d" % len(body)), (b"Cache-Control", b"no-store"), (MADE_HERE, reason)]
    if not keep:
        fields.append((b"Connection", b"close"))
    shown = b"" if request.method == b"HEAD" else body
    await client.write(write_head(b"HTTP/1.1 %d %s" % (status, phrase), fields) + shown)
    if has_body:
        await client.linger()
    return keep
