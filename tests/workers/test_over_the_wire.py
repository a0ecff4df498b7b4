"""A worker's calls against the real server process: daphne, its pool and its listener, over a real socket."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import requests
from django.db import connection

from jobs.lifecycle import request_stop
from jobs.models import Job
from jobs.notices import publish
from tests.factories import JobFactory
from tests.workers.conftest import NONCE
from workers import enrollment, standing
from workers.models import Worker

pytestmark = pytest.mark.django_db(transaction=True)

SECONDS = 60  # a guard against hanging
ROOT = Path(__file__).parents[2]


@pytest.fixture
def server(database_url: str, tmp_path: Path) -> Iterator[str]:
    """The control plane's web process; yields its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path / "web.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "daphne", "-b", "127.0.0.1", "-p", str(port), "openface.asgi:application"],
            cwd=ROOT,
            env={**os.environ, "DATABASE_URL": database_url},
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        wait_until_it_answers(f"http://127.0.0.1:{port}/healthz", process, log)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(SECONDS)
    assert "Traceback" not in log.read_text()


def wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if requests.get(url, timeout=SECONDS).ok:
                return
        except requests.ConnectionError:
            time.sleep(0.05)
    raise AssertionError(log.read_text())


def post(server: str, path: str, body: Any, headers: dict[str, str] | None = None) -> requests.Response:
    return requests.post(f"{server}/api/v1/workers/{path}", json=body, headers=headers, timeout=SECONDS)


def events(answer: requests.Response) -> Iterator[tuple[str, Any]]:
    """The events of a stream, without its comments."""
    name = ""
    for line in answer.iter_lines(chunk_size=1, decode_unicode=True):
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


def test_a_worker_lives_its_life_over_the_wire(server: str) -> None:
    token = enrollment.issue_token(
        "here", local=True, life=timedelta(minutes=5), gateway_url="http://127.0.0.1:18787"
    ).token
    hello = {"token": token, "nonce": NONCE, "hostname": "here", "version": "1"}
    enrolled = post(server, "enroll", hello)
    assert enrolled.status_code == 201
    me, headers = enrolled.json()["worker_id"], {"Authorization": f"Bearer {enrolled.json()['credential']}"}
    capabilities = {"worker_id": me, "worker_version": "1", "executor": "docker", "max_jobs": {"gpu": 0, "cpu": 2}}
    registered = post(server, "register", {"capabilities": capabilities, "gpus": [], "holds": []}, headers)
    session = registered.json()["session"]
    Worker.objects.update(gateway_status=Worker.Gateway.OK)

    with requests.get(f"{server}/api/v1/workers/{me}/signals", headers=headers, stream=True, timeout=SECONDS) as stream:
        heard = events(stream)
        assert next(heard) == ("work", {})  # when it opens

        job = JobFactory.create()
        publish("work")
        assert next(heard) == ("work", {})

        wish = {"session": session, "free_slots": {"gpu": 0, "cpu": 2}, "gpus": []}
        claimed = post(server, f"{me}/jobs/claim", wish, headers | {"Idempotency-Key": "k1"}).json()
        assert claimed["id"] == str(job.pk)
        assert claimed["clone_url"].startswith("http://127.0.0.1:8091/git/")

        batch = {"session": session, "lease": claimed["lease"], "events": [{"seq": 1, "kind": "building"}], "logs": []}
        assert post(server, f"{me}/jobs/{job.pk}/events", batch, headers).json()["state"] == "building"

        request_stop(job.pk)
        assert next(heard) == ("stop", {"lease": claimed["lease"]})

        standing.drain(Worker.objects.get().pk, actor=None)
        assert next(heard) == ("standing", {"standing": "draining"})

        standing.revoke(Worker.objects.get().pk, actor=None)
        assert next(heard) == ("standing", {})
        assert list(heard) == []

    refused = post(server, f"{me}/heartbeat", {}, headers)
    assert (refused.status_code, refused.json()["code"]) == (401, "credential_revoked")
    assert Job.objects.get().state == "cancelled"


def test_bad_bodies_are_told_by_the_real_server(server: str) -> None:
    url = f"{server}/api/v1/workers/enroll"

    large = requests.post(url, data=b"x" * (2 * 1024 * 1024), timeout=SECONDS)
    chunked = requests.post(url, data=(b"x" * 65536 for _ in range(40)), timeout=SECONDS)
    broken = requests.post(url, data=b"{", headers={"Content-Type": "application/json"}, timeout=SECONDS)
    nowhere = requests.get(f"{server}/api/v1/workers/nothing/here", timeout=SECONDS)

    assert [(answer.status_code, answer.json()["code"]) for answer in (large, chunked, broken, nowhere)] == [
        (413, "too_large"),
        (413, "too_large"),
        (400, "malformed"),
        (404, "not_found"),
    ]


def test_streams_leave_the_api_answering(server: str) -> None:
    """Open streams hold no connection of the pool: the database sees the pool's and the listener's, not one each."""
    token = enrollment.issue_token("here", local=True, gateway_url="http://127.0.0.1:18787").token
    enrolled = post(server, "enroll", {"token": token, "nonce": NONCE, "hostname": "here", "version": "1"}).json()
    headers = {"Authorization": f"Bearer {enrolled['credential']}"}
    url = f"{server}/api/v1/workers/{enrolled['worker_id']}/signals"

    streams = [requests.get(url, headers=headers, stream=True, timeout=SECONDS) for _ in range(60)]
    try:
        for stream in streams:
            assert next(events(stream)) == ("work", {})
        capabilities = {
            "worker_id": enrolled["worker_id"],
            "worker_version": "1",
            "executor": "docker",
            "max_jobs": {"gpu": 0, "cpu": 1},
        }
        answer = post(server, "register", {"capabilities": capabilities, "gpus": [], "holds": []}, headers)
        assert answer.status_code == 200
        with connection.cursor() as cursor:
            cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
            assert cursor.fetchone()[0] <= 16 + 1 + 1 + 1  # pool, listener, stamps, and this question
    finally:
        for stream in streams:
            stream.close()
