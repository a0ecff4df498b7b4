"""An upgraded connection (WebSocket): two plain streams, so frames, close code and reason are the app's own."""

from __future__ import annotations

from gpu_worker.caller import LINGER_SECONDS, Caller, Conversation
from gpu_worker.deadline import Deadline
from gpu_worker.peer import Peer, Reader


class Upgraded(Reader, Conversation):
    """Passes everything until both sides have ended; a break of one breaks the other. As a Reader it hears the app."""

    __slots__ = ("_app", "_caller", "_deadline")

    def __init__(self, caller: Caller, app: Peer) -> None:
        self._caller, self._app = caller, app
        self._deadline: Deadline | None = None

    def heard(self, data: bytes) -> None:
        self._app.write(data)

    def received(self, data: bytes) -> None:
        self._caller.peer.write(data)

    def caller_ended(self) -> None:
        self._app.write_end()
        self._one_way()

    def ended(self) -> None:
        self._caller.peer.write_end()
        self._one_way()

    def lost(self, problem: Exception | None) -> None:
        self._caller.lost(problem)

    def broken_off(self) -> None:
        self._app.abort()
        self._forget()

    def _one_way(self) -> None:
        """One side has ended; the other may finish what it has to say."""
        if self._caller.peer.at_end and self._app.at_end:
            self._app.close()
            self._forget()
            self._caller.go_on(keep=False)
        else:
            self._deadline = Deadline(self._too_late)
            self._deadline.set(LINGER_SECONDS)

    def _too_late(self) -> None:
        self._app.abort()
        self._forget()
        self._caller.go_on(keep=False)

    def _forget(self) -> None:
        if self._deadline is not None:
            self._deadline.drop()
