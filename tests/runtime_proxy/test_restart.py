"""A data plane that stops breaks off what takes too long, and says nothing of it: restarts are no fault."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from jobs.models import Job
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]
REQUEST = b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("begun", [True, False])
def test_what_is_under_way_ends_broken_and_quietly(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, caplog: pytest.LogCaptureFixture, begun: bool
):
    run_space()

    async def go_on(asked: Asked) -> None:
        if begun:
            await asked.answer(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await asked.reader.read(1)

    upstream.handler = go_on
    heard = b""
    with caplog.at_level(logging.INFO), data_plane.connect() as client:
        client.sendall(REQUEST * 2)
        if begun:
            heard = client.recv(65536)
        data_plane.stop()
        while piece := client.recv(65536):
            heard += piece

    assert heard.startswith(b"HTTP/1.1 200 ") == begun
    assert not heard.endswith(b"0\r\n\r\n")
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []
