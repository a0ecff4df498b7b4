"""The test's side of the app in the container: what comes to the container's port arrives at a port of the test."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tests.e2e_fidelity.mouthpiece import GO, HERE, TESTS_PORT, End
from tests.runtime_proxy.upstreams import Loop

WAITING = 8  # lines that wait for callers; each that is taken is replaced at once


class Tunnel:
    """Carries between one container and the ports that tests name. Make it, `carry_to` a port, and `stop` it."""

    def __init__(self, loop: Loop, container: str) -> None:
        self._loop = loop
        self._container = container
        self._port = 0
        self._ends: set[_Known] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def carry_to(self, port: int) -> None:
        """From now on, what comes goes to this port of ours. Returns when the container knows."""
        self._port = port
        self._loop.run(self._open_lines())

    def stop(self) -> None:
        """Break every line. Returns when the container has noticed: it is by itself again."""
        self._loop.run(self._close())

    async def _open_lines(self) -> None:
        for _ in range(WAITING):
            await self._open_line()

    async def _open_line(self) -> None:
        loop = asyncio.get_running_loop()
        _, line = await loop.create_connection(lambda: _Line(self._ends, self._take), self._container, TESTS_PORT)
        await line.heard.wait()

    async def _close(self) -> None:
        self._stopping = True
        for task in list(self._tasks):
            await task  # it may open one more
        for end in list(self._ends):
            if end.other is None:
                end.transport.write_eof()
            else:
                end.reset()
        for end in list(self._ends):
            await end.over.wait()

    def _take(self, line: _Line, early: bytes) -> None:
        """Somebody has called, and began with these bytes."""
        line.transport.pause_reading()
        task = asyncio.get_running_loop().create_task(self._connect(line, early))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect(self, line: _Line, early: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            _, near = await loop.create_connection(lambda: _Known(self._ends), "127.0.0.1", self._port)
        except OSError:
            line.reset()
            return
        near.transport.pause_reading()
        near.transport.write(early)
        line.tie(near)
        if not self._stopping:
            await self._open_line()


class _Known(End):
    """One end of a line, which is among others while it lasts."""

    def __init__(self, among: set[_Known]) -> None:
        super().__init__()
        self.over = asyncio.Event()
        self._among = among

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._among.add(self)

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        self._among.discard(self)
        self.over.set()


class _Line(_Known):
    """Leads to the container, and waits there for a caller."""

    def __init__(self, among: set[_Known], taken: Callable[[_Line, bytes], None]) -> None:
        super().__init__(among)
        self.heard = asyncio.Event()
        self._taken = taken

    def data_received(self, data: bytes) -> None:
        if self.other is not None:
            super().data_received(data)
            return
        if not self.heard.is_set():
            assert data.startswith(HERE)
            self.heard.set()
            data = data[len(HERE) :]
        if data:
            assert data.startswith(GO)
            self._taken(self, data[len(GO) :])

    def connection_lost(self, problem: Exception | None) -> None:
        super().connection_lost(problem)
        self.heard.set()
