"""Carry one request to an app and its answer back, byte for byte, without holding either.

Bodies pass in the coding they came in, heads and chunks as we write them ourselves (http_heads.py, http_framing.py): no
app can put bytes between two answers of one connection to the data plane, which other leases' answers pass too.
Informational answers (100, 103) pass; an upgraded connection becomes two plain streams (upgraded.py). A client that
goes away ends the app's request, a handshake too; an app that breaks off breaks the client's answer.

Everything happens in the call that brings the bytes: there is no task per request, and what one side sends is written
to the other at once.
"""

from __future__ import annotations

import asyncio
import logging

from gpu_worker.app_connections import AppBrokeOff, AppConnections, AppHeadTooLarge, AppUnreachable, NoAnswer
from gpu_worker.caller import Caller, Conversation
from gpu_worker.http_framing import Body, BodyUntilClose, is_bodiless, request_body, response_body
from gpu_worker.http_heads import (
    FRAMING,
    HOP_BY_HOP,
    BadMessage,
    HeadReader,
    HeadTooLong,
    Request,
    Response,
    parse_response,
    write_head,
)
from gpu_worker.peer import Peer, Reader
from gpu_worker.upgraded import Upgraded

logger = logging.getLogger(__name__)

MOST_INFORMATIONAL = 32  # of one request: an app could go on for ever
RUNTIME_HEADER = b"x-openface-runtime"
OWN_PREFIX = b"x-openface-"
_NOT_FOR_THE_APP = HOP_BY_HOP | {RUNTIME_HEADER}
# Without extensions the app's frames are plain, as the next hop expects them.
_NOT_FOR_A_HANDSHAKE = _NOT_FOR_THE_APP | {b"sec-websocket-extensions"}
_NOT_WITHOUT_BODY = HOP_BY_HOP | FRAMING
_REPEATABLE = frozenset((b"GET", b"HEAD", b"OPTIONS"))


class Exchange(Reader, Conversation):
    """One request and its answer. As a Reader it hears the app."""

    __slots__ = (
        "_again", "_app", "_apps", "_body", "_caller", "_connecting", "_head", "_held", "_informational", "_keep",
        "_request", "_reusable", "_target", "_upload",
    )  # fmt: skip

    def __init__(self, caller: Caller, request: Request, target: bytes, apps: AppConnections) -> None:
        """Raises BadMessage for a request of doubtful length, for which no connection is made."""
        self._caller, self._request, self._target, self._apps = caller, request, target, apps
        self._upload = request_body(request)
        self._app: Peer | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._again = False  # whether it may be asked once more: on an idle connection that is just being closed
        self._head = HeadReader()
        self._informational = 0
        self._body: Body | None = None  # of the answer; None before its head
        self._held = b""  # of the app's words, what makes no sense without more
        self._keep = self._reusable = False

    # -- the way to the app ------------------------------------------------------------------------------------

    def start(self) -> None:
        repeatable = self._upload.complete and self._request.method in _REPEATABLE and self._request.upgrade is None
        app = self._apps.reuse() if repeatable else None
        if app is None:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
        else:
            self._again = True
            self._ask(app)

    async def _connect(self) -> None:
        try:
            app = await self._apps.connect()
            self._connecting = None
            self._ask(app)
        except AppUnreachable as problem:
            self._connecting = None
            self._give_up(problem)
        except Exception:
            logger.exception("gateway failed", extra={"action": "gateway_failed"})  # as in peer.py
            self._caller.abort()

    def _ask(self, app: Peer) -> None:
        client = self._caller.peer
        self._app = app
        if app.at_end:  # before anybody heard it
            self._give_up(AppBrokeOff("the app closed the connection at once"))
            return
        app.reader = self
        app.fed_by(client)
        client.fed_by(app)
        client.resume()  # it may have been stopped while it had nobody to talk to
        app.write(self._request_head())
        if self._caller.held:
            held = bytes(self._caller.held)
            self._caller.held.clear()
            self.heard(held)

    def _request_head(self) -> bytes:
        upgrade = self._request.upgrade
        if upgrade is None:
            lines = self._request.without(_NOT_FOR_THE_APP)
        else:
            lines = self._request.without(_NOT_FOR_A_HANDSHAKE)
            lines += [b"Connection: Upgrade", b"Upgrade: " + upgrade]
        version = b"HTTP/1.1" if self._request.minor_version else b"HTTP/1.0"
        return write_head(b" ".join((self._request.method, self._target, version)), lines)

    def heard(self, data: bytes) -> None:
        if self._app is None or self._upload.complete:
            self._caller.hold(data)
            return
        if self._caller.held:
            data = bytes(self._caller.held) + data
            self._caller.held.clear()
        try:
            used, body = self._upload.take(data)
        except BadMessage as problem:
            self._caller.lost(problem)  # the app must not take what it has for a request, and need not wait
            return
        if used < len(data):
            self._caller.hold(data[used:])
        if body:
            self._app.write(body)

    def caller_ended(self) -> None:
        self._caller.lost(ConnectionError("the client went away"))

    def broken_off(self) -> None:
        if self._connecting is not None:
            self._connecting.cancel()
        if self._app is not None:
            self._app.abort()

    # -- the way back ------------------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._body is None:
            self._read_head(data)
        else:
            self._pass(b"", self._body, self._held + data if self._held else data)

    def ended(self) -> None:
        if self._body is None:
            self._give_up(AppBrokeOff("the app closed the connection without an answer"))
            return
        try:
            self._caller.peer.write(self._body.end_of_stream())
        except BadMessage as problem:
            self._caller.lost(problem)
        else:
            self._finish()

    def lost(self, problem: Exception | None) -> None:
        if self._body is None:
            self._give_up(AppBrokeOff(str(problem)))
        else:
            self._caller.lost(problem)

    def _read_head(self, data: bytes) -> None:
        """Pass on informational answers; begin with the final one."""
        while data and self._app is not None:  # None: given up
            try:
                head = self._head.take(data)
                if head is None:
                    return
                response = parse_response(head)
                body = response_body(response, self._request)
                if response.status == 101 and (self._request.upgrade is None or not self._upload.complete):
                    raise BadMessage("the app upgraded unasked, or in the middle of a request")
            except HeadTooLong as problem:
                self._give_up(AppHeadTooLarge(str(problem)))
                return
            except BadMessage as problem:
                self._give_up(AppBrokeOff(str(problem)))
                return
            data = self._head.rest
            if response.status == 101:
                self._upgrade(self._app, response, data)
                return
            if response.status >= 200:
                self._begin(response, body, data)
                return
            self._inform(response)

    def _inform(self, response: Response) -> None:
        self._again = False
        if self._request.minor_version:
            self._caller.peer.write(write_head(_status_line(response), response.without(_NOT_WITHOUT_BODY, OWN_PREFIX)))
        self._informational += 1
        if self._informational == MOST_INFORMATIONAL:
            self._give_up(AppBrokeOff("too many informational answers"))

    def _begin(self, response: Response, body: Body, data: bytes) -> None:
        """Pass on the head of the final answer, with what is there of its body."""
        endless = isinstance(body, BodyUntilClose)
        in_chunks = isinstance(body, BodyUntilClose) and body.in_chunks
        lines = response.without(_NOT_WITHOUT_BODY if is_bodiless(response.status) else HOP_BY_HOP, OWN_PREFIX)
        if in_chunks:
            lines.append(b"Transfer-Encoding: chunked")
        self._keep = self._request.keeps_alive and endless == in_chunks
        if not self._keep:
            lines.append(b"Connection: close")
        self._reusable = response.keeps_alive and not endless
        self._body = body
        self._pass(write_head(_status_line(response), lines), body, data)

    def _pass(self, head: bytes, body: Body, data: bytes) -> None:
        try:
            used, passed = body.take(data)
        except BadMessage as problem:
            self._caller.lost(problem)
            return
        self._held = data[used:]
        if head or passed:
            self._caller.peer.write(head + passed if head else passed)
        if body.complete:
            self._finish()

    def _finish(self) -> None:
        """The answer is complete."""
        app = self._app
        assert app is not None
        if not self._upload.complete:
            # the app answered without reading all: the rest of the request is nobody's
            app.abort()
            self._caller.linger()
            return
        if self._reusable and not self._held and not app.at_end and app.has_sent_all:
            app.fed_by(None)
            self._apps.keep(app)
        else:
            app.close()
        self._caller.go_on(self._keep)

    def _give_up(self, problem: NoAnswer) -> None:
        """There is no answer; the client has seen none either."""
        if self._app is not None:
            self._app.abort()
            self._app = None
        if self._again and isinstance(problem, AppBrokeOff):
            self._again = False  # nothing was lost: ask again on a new connection
            self._head = HeadReader()
            self._connecting = asyncio.get_running_loop().create_task(self._connect())
            return
        logger.debug("no answer", extra={"action": "gateway_no_answer", "problem": str(problem)})
        self._caller.say(self._request, 502, b"Bad Gateway", reason=problem.reason)

    def _upgrade(self, app: Peer, response: Response, data: bytes) -> None:
        """From now on both say what they like; *data* is what the app has said already."""
        self._caller.peer.write(write_head(_status_line(response), _upgrade_lines(response)) + data)
        streams = Upgraded(self._caller, app)
        app.reader = streams
        self._caller.turn_to(streams)
        if self._caller.held:
            streams.heard(bytes(self._caller.held))
            self._caller.held.clear()
            self._caller.peer.resume()


def _status_line(response: Response) -> bytes:
    return b"HTTP/1.1 %d %s" % (response.status, response.reason)


def _upgrade_lines(response: Response) -> list[bytes]:
    """With what it says of the connection, which is ours now."""
    pairs = zip(response.keys, response.lines, strict=True)
    return [line for key, line in pairs if key not in FRAMING and not key.startswith(OWN_PREFIX)]
