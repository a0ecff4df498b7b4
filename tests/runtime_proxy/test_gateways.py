"""Whether workers' gateways can be reached, and that they are who they should be."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import aiohttp
import pytest
from pytest_django import Settings

from gpu_worker.credentials import Credential
from gpu_worker.gateway import Gateway
from jobs import notices
from runtime_proxy import gateways
from tests.factories import WorkerFactory
from tests.runtime_proxy.conftest import url_of
from tests.runtime_proxy.data_plane import DataPlane, until
from tests.runtime_proxy.upstreams import Asked, Upstream
from workers.models import Worker

SECRET = "s" * 43


@pytest.fixture
def worker(transactional_db: None, gateway: Gateway) -> Worker:
    """A worker whose gateway runs and knows its credential."""
    row: Worker = WorkerFactory.create(
        name="gpu1",
        gateway_url=url_of(gateway),
        gateway_status=Worker.Gateway.UNKNOWN,
        credential_hash=hashlib.sha256(SECRET.encode()).hexdigest(),
    )
    gateway.identify(Credential(f"ofw_{row.pk.hex}_{SECRET}"))
    return row


@pytest.fixture
def work_signals() -> Iterator[list[str]]:
    """Kinds of the notices that arrive."""
    seen: list[str] = []
    undo = notices.subscribe(lambda notice: seen.append(notice.kind))
    yield seen
    undo()


def asked(worker: Worker) -> gateways.Finding:
    """Ask this worker's gateway as the data plane does."""
    (gateway,) = gateways.approved(str(worker.pk))

    async def ask() -> gateways.Finding:
        async with aiohttp.ClientSession() as session:
            return await gateways.ask(session, gateway)

    return asyncio.run(ask())


def test_a_gateway_that_proves_itself_is_reachable(worker: Worker):
    assert asked(worker) == gateways.Finding("ok")


def test_a_closed_port_is_named(worker: Worker, gateway: Gateway):
    Worker.objects.update(gateway_url="http://127.0.0.1:1")

    assert asked(worker) == gateways.Finding("refused", "TCP 1 of 127.0.0.1 is closed towards the control plane.")


def test_another_workers_gateway_is_refused(worker: Worker, gateway: Gateway):
    gateway.identify(Credential(f"ofw_{'0' * 32}_{SECRET}"))

    assert asked(worker).status == "refused"
    assert "Another worker answers" in asked(worker).detail


def test_an_old_credential_is_refused(worker: Worker, gateway: Gateway):
    gateway.identify(Credential(f"ofw_{worker.pk.hex}_{'o' * 43}"))

    assert asked(worker).status == "refused"


@pytest.mark.parametrize(
    "handler",
    [
        pytest.param(lambda asked: asked.ok(b"<h1>Welcome</h1>"), id="a page"),
        pytest.param(lambda asked: asked.ok(b'["worker_id"]'), id="other JSON"),
        pytest.param(lambda asked: asked.ok(b"x" * 100_000), id="a long answer"),
        pytest.param(
            lambda asked: asked.answer(b"HTTP/1.1 302 F\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"),
            id="a redirect",
        ),
        pytest.param(lambda asked: asked.answer(b"SSH-2.0-OpenSSH\r\n"), id="another protocol"),
    ],
)
def test_whatever_else_answers_there_is_refused(worker: Worker, upstream: Upstream, handler: Callable[[Asked], Any]):
    upstream.handler = handler
    Worker.objects.update(gateway_url=f"http://127.0.0.1:{upstream.port}")

    assert asked(worker).status == "refused"


def test_a_gateway_that_says_nothing_times_out(worker: Worker, upstream: Upstream, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(gateways, "ANSWER_SECONDS", 0.2)

    async def nothing(asked: Asked) -> None:
        await asked.reader.read()

    upstream.handler = nothing
    Worker.objects.update(gateway_url=f"http://127.0.0.1:{upstream.port}")

    assert asked(worker).status == "timeout"


def test_only_approved_addresses_are_called(worker: Worker):
    Worker.objects.update(gateway_url="", gateway_proposed_url="http://192.0.2.1:8787")
    assert gateways.approved() == []

    Worker.objects.update(gateway_url="http://127.0.0.1:1", revoked_at="2026-01-01T00:00:00Z")
    assert gateways.approved() == []


def test_a_finding_about_an_old_address_is_dropped(worker: Worker):
    (gateway,) = gateways.approved()
    Worker.objects.update(gateway_url="http://127.0.0.1:2")

    gateways.write_down(gateway, gateways.Finding("ok"))

    worker.refresh_from_db()
    assert (worker.gateway_status, worker.gateway_checked_at) == ("unknown", None)


def test_the_data_plane_asks_by_itself_and_tells_waiting_jobs(
    worker: Worker, data_plane: DataPlane, work_signals: list[str]
):
    until(lambda: Worker.objects.get().gateway_status == "ok")

    assert Worker.objects.get().gateway_checked_at is not None
    until(lambda: "work" in work_signals)


def test_a_worker_that_registers_is_asked_at_once(
    worker: Worker, gateway: Gateway, data_plane: DataPlane, settings: Settings
):
    settings.OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS = 15  # the next round is a minute away
    until(lambda: Worker.objects.get().gateway_status == "ok")
    Worker.objects.update(gateway_url="http://127.0.0.1:1")

    notices.publish("gateway", worker=worker.pk)

    until(lambda: Worker.objects.get().gateway_status == "refused")
