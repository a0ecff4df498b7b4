"""The gateway's address comes up late, or its port is still taken: the worker lives, says so, and waits for it."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from http.client import HTTPConnection

import pytest

from gpu_worker.errors import ConfigError
from gpu_worker.gateway import Gateway
from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, free_port, make_repository

Make = Callable[..., WorkerProcess]
ELSEWHERE = "192.0.2.55"  # of a network that no machine is in (RFC 5737)


@pytest.fixture
def late() -> Iterator[Callable[[str, int], Gateway]]:
    made: list[Gateway] = []

    def make(host: str, port: int) -> Gateway:
        made.append(Gateway(host, port))
        made[-1].start()
        return made[-1]

    yield make
    for gateway in made:
        gateway.stop()


def taken(port: int) -> socket.socket:
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind(("127.0.0.1", port))
    other.listen()
    return other


def test_a_port_that_is_taken_is_listened_on_as_soon_as_it_is_free(late: Callable[[str, int], Gateway]) -> None:
    port = free_port()
    with taken(port):
        gateway = late("127.0.0.1", port)
        assert gateway.trouble == f"The gateway cannot listen on 127.0.0.1 port {port}: Address already in use."

    eventually(lambda: gateway.trouble is None, what="the port")
    client = HTTPConnection("127.0.0.1", port, timeout=10)
    client.request("GET", "/healthz", headers={"Connection": "close"})
    assert client.getresponse().read() == b"", "it answers, and knows no credential yet"
    client.close()


def test_an_address_that_is_not_there_is_waited_for(late: Callable[[str, int], Gateway]) -> None:
    gateway = late(ELSEWHERE, free_port())

    assert "Cannot assign requested address" in str(gateway.reason())
    assert gateway.port != 0, "what is proposed to the control plane does not change"


def test_an_address_of_a_kind_that_cannot_be_had_is_a_wrong_setting() -> None:
    gateway = Gateway(ELSEWHERE, 0)  # nobody could be told which port it will be

    with pytest.raises(ConfigError, match=ELSEWHERE):
        gateway.start()
    gateway.stop()


def test_the_worker_lives_meanwhile_keeps_its_apps_and_takes_no_jobs(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    revision = make_repository(plane.git_root, "hello", {"app.py": WEB_APP})
    first = plane.queue_job("hello", revision, app_file="app.py")
    eventually(lambda: plane.state(first) == "running", what="running")
    lease = plane.lease_of(first)
    assert lease is not None
    pid = ask(worker, lease.id)[1]["pid"]
    worker.terminate()

    with taken(worker.port):
        worker.start()
        sentence = f"The gateway cannot listen on 127.0.0.1 port {worker.port}: Address already in use."
        eventually(lambda: plane.beats[-1]["paused_reason"] == sentence, what="a heartbeat that says so")
        status = eventually(lambda: (now := command(worker, "status"))["gateway_trouble"] and now, what="the status")
        doctor = {check["check"]: check for check in command(worker, "doctor", code=1)["checks"]}
        second = plane.queue_job("hello", revision, app_file="app.py")
        beats = len(plane.beats)
        eventually(lambda: len(plane.beats) > beats + 3, what="some heartbeats")

        assert (status["gateway_trouble"], status["takes_no_jobs_because"]) == (sentence, sentence)
        assert (doctor["gateway"]["ok"], doctor["gateway"]["detail"]) == (False, sentence)
        assert plane.state(second) == "queued"

    assert eventually(lambda: answered(worker, lease.id), what="the app through the gateway") == pid
    eventually(lambda: plane.state(second) == "running", what="the second job")


def answered(worker: WorkerProcess, lease: str) -> int | None:
    try:
        return int(ask(worker, lease)[1]["pid"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
