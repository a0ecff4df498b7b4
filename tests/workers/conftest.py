"""A worker that speaks the wire: a client with its credential."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from django.test import Client

from jobs import notices
from tests.factories import UptimeFactory
from workers import enrollment
from workers.api.throttling import BUCKETS
from workers.models import Worker

GOLDEN = Path(__file__).parents[2] / "fixtures" / "protocol" / "v1"
LISTENER_SECONDS = 10  # a guard against hanging
NONCE = "9f2c4a7e1b8d3056e4f7a90c2d6b81f5"
GPU = {
    "uuid": "GPU-5f1c2a90-7d34-4be6-a1c8-0e93d27b64f5",
    "index": 0,
    "vendor": "NVIDIA",
    "model": "NVIDIA GeForce RTX 4090",
    "total_vram_mib": 24564,
    "free_vram_mib": 24100,
    "ours": [],
    "foreign": [],
    "healthy": True,
    "simulated": False,
}


def golden(name: str) -> Any:
    """A golden message of the protocol."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


@dataclass
class WireWorker:
    """A worker as the server meets it: it has a credential and sends JSON."""

    id: str
    credential: str
    session: int = 0
    beat: int = 0
    gpus: list[dict[str, Any]] = field(default_factory=list)
    client: Client = field(default_factory=Client)

    @property
    def row(self) -> Worker:
        return Worker.objects.get(pk=self.id)

    @property
    def row_id(self) -> uuid.UUID:
        return uuid.UUID(self.id)

    def post(self, path: str, body: Any, **headers: str) -> Any:
        """POST below /api/v1/workers/; a `str` body is sent as it is."""
        raw = body if isinstance(body, str | bytes) else json.dumps(body)
        return self.client.post(
            f"/api/v1/workers/{path}",
            raw,
            content_type="application/json",
            headers={"Authorization": f"Bearer {self.credential}", **headers},
        )

    def register(self, *, holds: Any = (), cpu: int = 4, gpu: int = 2, **more: Any) -> Any:
        body = {
            "capabilities": {
                "worker_id": self.id,
                "worker_version": "0.1.0",
                "executor": "docker",
                "max_jobs": {"gpu": gpu, "cpu": cpu},
                "features": ["cpu", "nvidia", "cuda"],
            },
            "gpus": self.gpus,
            "holds": None if holds is None else list(holds),
            **more,
        }
        answer = self.post("register", body)
        assert answer.status_code == 200, answer.content
        self.session, self.beat = answer.json()["session"], 0
        return answer.json()

    def heartbeat(self, *, holds: Any = (), **more: Any) -> Any:
        self.beat += 1
        body = {
            "session": self.session,
            "beat": self.beat,
            "accepting": True,
            "gpus": self.gpus,
            "holds": None if holds is None else list(holds),
            **more,
        }
        return self.post(f"{self.id}/heartbeat", body)

    def claim(self, key: str = "", **more: Any) -> Any:
        body = {"session": self.session, "free_slots": {"gpu": 2, "cpu": 4}, "gpus": self.gpus, **more}
        return self.post(f"{self.id}/jobs/claim", body, **{"Idempotency-Key": key or uuid.uuid4().hex})

    def events(self, claimed: Any, events: list[Any], logs: Iterable[Any] = (), **more: Any) -> Any:
        body = {"session": self.session, "lease": claimed["lease"], "events": events, "logs": list(logs), **more}
        return self.post(f"{self.id}/jobs/{claimed['id']}/events", body)


@pytest.fixture(autouse=True)
def fresh_buckets() -> None:
    """No test inherits another's calls."""
    BUCKETS._levels.clear()


@pytest.fixture(autouse=True)
def up_for_a_day(request: pytest.FixtureRequest) -> None:
    """Where a test uses the database, the control plane has been up for long: silence counts."""
    marks = list(request.node.iter_markers("django_db"))
    if marks:
        request.getfixturevalue("transactional_db" if any(m.kwargs.get("transaction") for m in marks) else "db")
        UptimeFactory.create()


@pytest.fixture
def enroll() -> Callable[..., WireWorker]:
    """Enroll (and by default register) a worker over the wire."""

    def make(
        name: str = "gpu1", *, gpus: Iterable[dict[str, Any]] = (), register: bool = True, **options: Any
    ) -> WireWorker:
        issued = enrollment.issue_token(name, life=timedelta(minutes=5), **options)
        body = {"token": issued.token, "nonce": NONCE, "hostname": name, "version": "0.1.0"}
        answer = Client().post("/api/v1/workers/enroll", json.dumps(body), content_type="application/json")
        assert answer.status_code == 201, answer.content
        worker = WireWorker(answer.json()["worker_id"], answer.json()["credential"], gpus=list(gpus))
        if register:
            worker.register()
        return worker

    return make


@pytest.fixture
def worker(enroll: Callable[..., WireWorker]) -> WireWorker:
    """A local worker with one GPU, whose gateway can be reached. Files that need another one have their own."""
    found = enroll("gpu1", local=True, gpus=[GPU], gateway_url="http://127.0.0.1:18787")
    Worker.objects.update(gateway_status=Worker.Gateway.OK)
    return found


@pytest.fixture
def listener(database_url: str) -> Iterator[None]:
    """What `openface.pg_listener` does, for the length of a test."""
    ready, stop = threading.Event(), threading.Event()

    def listen() -> None:
        with psycopg.connect(database_url, autocommit=True) as listening:
            listening.execute(f"LISTEN {notices.CHANNEL}")
            ready.set()
            while not stop.is_set():
                for notify in listening.notifies(timeout=0.05):
                    notices.deliver(notify.payload)

    thread = threading.Thread(target=listen)
    thread.start()
    assert ready.wait(LISTENER_SECONDS)
    yield
    stop.set()
    thread.join(LISTENER_SECONDS)
