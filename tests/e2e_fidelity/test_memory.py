"""However much passes, and however slow one side is: neither the data plane nor the worker keeps any of it."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runtime_proxy.frames import BINARY
from tests.e2e_fidelity.chain import WORKER, Chain
from tests.runtime_proxy.data_plane import DataPlane, settled, until
from tests.runtime_proxy.raw_sockets import RawApp, RawBrowser, frame
from tests.runtime_proxy.raw_sockets import app as app
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., None]
MIB = 1024 * 1024
SIZE = 256 * MIB
PIECE = bytes(MIB)
LARGEST, MESSAGES = 64 * MIB, 3
MOST_GROWTH_MIB = 24  # a few buffers; a tenth of what passes


@pytest.fixture
def processes(chain: Chain) -> list[int]:
    """Those that the bytes pass."""
    return [chain.pid_of("data"), chain.pid_of(WORKER)]


@pytest.fixture(autouse=True)
def nothing_is_kept(processes: list[int]) -> Iterator[None]:
    """Compare what each process holds before a test with the most that it held meanwhile."""
    for pid in processes:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the kernel's note of the most begins anew
    before = [mib(pid, "VmRSS") for pid in processes]
    yield
    growth = [mib(pid, "VmHWM") - held for pid, held in zip(processes, before, strict=True)]
    assert max(growth) < MOST_GROWTH_MIB, growth


def mib(pid: int, name: str) -> float:
    found = re.search(rf"^{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) / 1024


def test_an_answer_waits_at_the_app_for_a_visitor_who_does_not_read(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()
    sent = 0

    async def pour(asked: Asked) -> None:
        nonlocal sent
        await asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % SIZE)
        while sent < SIZE:
            await asked.answer(PIECE)
            sent += MIB

    upstream.handler = pour

    with data_plane.connect() as client:
        client.sendall(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n")
        assert client.recv(1)
        assert settled(lambda: sent) < SIZE
        got = 1
        while got < SIZE:
            piece = client.recv(MIB)
            assert piece
            got += len(piece)


def test_an_upload_waits_at_the_visitor_for_an_app_that_does_not_read(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream
):
    run_space()
    go_on = threading.Event()
    got = sent = 0

    async def wait(asked: Asked) -> None:
        nonlocal got
        await asyncio.to_thread(go_on.wait, 20)
        while got < SIZE:
            piece = await asked.reader.read(MIB)
            assert piece
            got += len(piece)
        await asked.ok()

    upstream.handler = wait

    with data_plane.connect() as client:
        client.sendall(b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nContent-Length: %d\r\n\r\n" % SIZE)

        def send() -> None:
            nonlocal sent
            while sent < SIZE:
                client.sendall(PIECE)
                sent += MIB

        sender = threading.Thread(target=send)
        sender.start()
        held_at = settled(lambda: sent)
        go_on.set()
        sender.join(30)
        assert client.recv(4096).startswith(b"HTTP/1.1 200 ")

    assert held_at < SIZE
    assert got == SIZE


def test_messages_wait_at_the_visitor_for_an_app_that_does_not_read(
    data_plane: DataPlane, run_space: RunSpace, app: RawApp
):
    run_space(port=app.port)
    app.keeps = False
    sent = 0

    def send() -> None:
        nonlocal sent
        for _ in range(MESSAGES):
            for at in range(0, len(largest), MIB):
                browser.say(largest[at : at + MIB])
                sent += MIB

    largest = frame(BINARY, bytes(LARGEST), masked=True)
    with RawBrowser(data_plane) as browser:
        app.stop_reading()
        sender = threading.Thread(target=send)
        sender.start()
        held_at = settled(lambda: sent)
        app.read_on()
        sender.join(30)
        until(lambda: app.received == MESSAGES * len(largest))

    assert held_at < MESSAGES * LARGEST


def test_messages_wait_at_the_app_for_a_visitor_who_does_not_read(
    data_plane: DataPlane, run_space: RunSpace, app: RawApp
):
    run_space(port=app.port)
    largest = frame(BINARY, bytes(LARGEST), masked=False)

    with RawBrowser(data_plane) as browser:
        for _ in range(MESSAGES):
            app.say(largest)
        settled(app.waits_to_send)

        for _ in range(MESSAGES):
            assert browser.hear(len(largest)) == largest
