"""Who calls the gateway: one connection, and its requests one after the other."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable

from gpu_worker.deadline import Deadline
from gpu_worker.http_heads import BadMessage, HeadReader, HeadTooLong, Request, parse_request, write_head
from gpu_worker.peer import HIGH_WATER_BYTES, Peer, Reader

logger = logging.getLogger(__name__)

TURN_BYTES = 16 * 1024  # of requests that came together, before other connections have their turn
IDLE_SECONDS = 120.0  # between requests of one connection
FIRST_HEAD_SECONDS = 10.0
LINGER_SECONDS = 5.0
MADE_HERE = b"X-OpenFace-Gateway"
"""On answers of the gateway itself; an app cannot send it. Tells the data plane "not the app's words"."""


class Conversation(ABC):
    """What is under way between a caller and an app, seen from the caller."""

    __slots__ = ()

    @abstractmethod
    def heard(self, data: bytes) -> None:
        """The caller says this after the head of its request."""

    @abstractmethod
    def caller_ended(self) -> None:
        """The caller says nothing more."""

    @abstractmethod
    def broken_off(self) -> None:
        """The caller is gone, or may not talk any more."""


class Caller(Reader):
    """Reads requests and has each answered: by `say`, or by a conversation that somebody `begin`s.

    A conversation ends by one call of `say`, `go_on`, `linger`, `close` or `abort`.
    """

    def __init__(
        self, answer: Callable[[Caller, Request], None], gone: Callable[[Caller], None], inbox: memoryview
    ) -> None:
        """*answer* is asked to answer each request, *gone* is told when the connection has come to its end."""
        self.peer = Peer(self, inbox)
        self.held = bytearray()
        """What the conversation has heard and could not use yet; more than a little keeps us from reading on."""
        self._answer, self._gone = answer, gone
        self._conversation: Conversation | None = None
        self._among: set[Caller] = set()
        self._head = HeadReader()
        self._lingers = False
        self._rests = False  # more requests are there, and have their turn later
        self._deadline = Deadline(self._too_late)
        self._deadline.set(FIRST_HEAD_SECONDS)

    # -- what the other side does ------------------------------------------------------------------------------

    def received(self, data: bytes) -> None:
        if self._conversation is not None:
            self._conversation.heard(data)
        elif self._rests:
            self.hold(data)
        elif not self._lingers:
            self._read(data)

    def ended(self) -> None:
        if self._conversation is not None:
            self._conversation.caller_ended()
        elif self._head.has_begun:
            self.abort()
        else:
            self.close()

    def lost(self, problem: Exception | None) -> None:
        logger.debug("connection broken off", extra={"action": "gateway_broken", "problem": str(problem)})
        self.abort()

    def _read(self, data: bytes) -> None:
        """Answer requests, until one takes longer; of very many at once only some now."""
        data, later = data[:TURN_BYTES], data[TURN_BYTES:]
        while data and not self._lingers and not self.peer.is_over:
            try:
                head = self._head.take(data)
                if head is None:
                    break
                request = parse_request(head)
                data = self._head.rest
                self._deadline.clear()
                self._answer(self, request)
            except (BadMessage, HeadTooLong) as problem:
                self.lost(problem)
                return
            if self._conversation is not None:
                if data or later:
                    self._conversation.heard(data + later)
                return
        if later and not self._lingers and not self.peer.is_over:
            self._rests = True
            self.hold(later)
            asyncio.get_running_loop().call_soon(self._read_on)

    def _read_on(self) -> None:
        self._rests = False
        if self.peer.is_over:
            return
        data = bytes(self.held)
        self.held.clear()
        self.peer.resume()
        self._read(data)

    def _too_late(self) -> None:
        if self._lingers:
            self.close()
        else:
            self.lost(TimeoutError("no request came"))

    # -- what we do --------------------------------------------------------------------------------------------

    def begin(self, conversation: Conversation, among: set[Caller]) -> None:
        """From now on *conversation* hears what comes; *among* has us in it as long as one lasts."""
        self._conversation = conversation
        self._among = among
        among.add(self)

    def turn_to(self, conversation: Conversation) -> None:
        """The conversation goes on in another way."""
        self._conversation = conversation

    def hold(self, data: bytes) -> None:
        """Put *data* by for the conversation, or for the next request."""
        self.held += data
        if len(self.held) > HIGH_WATER_BYTES:
            self.peer.pause()

    def say(
        self, request: Request, status: int, phrase: bytes, *, body: bytes = b"", reason: bytes = b"refused"
    ) -> None:
        """An answer of our own. The connection ends where the request has a body that we do not want to read."""
        keep = request.keeps_alive and not request.is_framed and request.upgrade is None
        lines = [b"Content-Type: application/json"] if body else []
        lines += [b"Content-Length: %d" % len(body), b"Cache-Control: no-store", MADE_HERE + b": " + reason]
        if not keep:
            lines.append(b"Connection: close")
        shown = b"" if request.method == b"HEAD" else body
        self.peer.write(write_head(b"HTTP/1.1 %d %s" % (status, phrase), lines) + shown)
        if request.is_framed:
            self.linger()
        else:
            self.go_on(keep)

    def go_on(self, keep: bool) -> None:
        """The conversation is over. Without *keep* there is no other one."""
        self._talked()
        if not keep:
            self.close()
            return
        self.peer.fed_by(None)
        self.peer.resume()
        self._deadline.set(IDLE_SECONDS)
        if self.held:
            data = bytes(self.held)
            self.held.clear()
            self._read(data)

    def linger(self) -> None:
        """Let the other side read our last words: a close with unread data in our socket would reset them away."""
        self._talked()
        self._lingers = True
        self.peer.write_end()
        self.peer.fed_by(None)
        self.peer.resume()
        self._deadline.set(LINGER_SECONDS)
        if self.peer.at_end:
            self.close()

    def close(self) -> None:
        """Close after what was written is out."""
        self.peer.close()
        self._end()

    def abort(self) -> None:
        """Break the connection, and what is under way."""
        self.peer.abort()
        self._end()

    def _talked(self) -> None:
        self._conversation = None
        self._among.discard(self)

    def _end(self) -> None:
        self._deadline.drop()
        conversation = self._conversation
        self._talked()
        self._gone(self)
        if conversation is not None:
            conversation.broken_off()
