"""A worker that only speaks the wire: it claims and reports, and runs nothing. For measuring the control plane."""

from __future__ import annotations

import threading
import time
import uuid
from contextlib import suppress
from typing import Any

import requests


class PlainWorker:
    """One enrolled worker. Its `claims` are (time of the answer, job) in the order of arrival."""

    def __init__(self, url: str, token: str, name: str, *, max_cpu: int = 50) -> None:
        self._url = f"{url}/api/v1"
        self._http = requests.Session()
        self._http.trust_env = False
        enrolled = self._http.post(
            f"{self._url}/workers/enroll",
            json={"token": token, "nonce": uuid.uuid4().hex, "hostname": name, "version": "bench"},
            timeout=10,
        )
        enrolled.raise_for_status()
        self.id = enrolled.json()["worker_id"]
        self._http.headers["Authorization"] = f"Bearer {enrolled.json()['credential']}"
        self._beat = 0
        self.claims: list[tuple[float, dict[str, Any]]] = []
        self.listening = threading.Event()
        registered = self._post("workers/register", self._registration(name, max_cpu))
        self.session = registered["session"]

    def listen_and_claim(self) -> None:
        """In a thread: claim whenever the signal stream says that there is work."""
        threading.Thread(target=self._listen, daemon=True).start()
        assert self.listening.wait(10), "the signal stream did not open"

    def heartbeat(self, holds: list[dict[str, Any]] | None) -> dict[str, Any]:
        self._beat += 1
        body = {"session": self.session, "beat": self._beat, "accepting": True, "gpus": [], "disk": {}, "holds": holds}
        return self._post(f"workers/{self.id}/heartbeat", body)

    def claim(self) -> dict[str, Any] | None:
        answer = self._http.post(
            f"{self._url}/workers/{self.id}/jobs/claim",
            json={"session": self.session, "free_slots": {"gpu": 0, "cpu": 50}, "gpus": []},
            headers={"Idempotency-Key": str(uuid.uuid4())},
            timeout=10,
        )
        answer.raise_for_status()
        return answer.json() if answer.status_code == 200 else None

    def report(self, job: dict[str, Any], *kinds: dict[str, Any]) -> dict[str, Any]:
        events = [{"seq": seq, **kind} for seq, kind in enumerate(kinds, start=1)]
        body = {"session": self.session, "lease": job["lease"], "events": events, "logs": []}
        return self._post(f"workers/{self.id}/jobs/{job['id']}/events", body)

    def _listen(self) -> None:
        with suppress(requests.RequestException):  # the stream ends with the server
            self._claim_on_signals()

    def _claim_on_signals(self) -> None:
        stream = requests.Session()
        stream.trust_env = False
        url = f"{self._url}/workers/{self.id}/signals"
        with stream.get(url, headers=dict(self._http.headers), stream=True, timeout=60) as answer:
            answer.raise_for_status()
            self.listening.set()
            for line in answer.iter_lines(chunk_size=1):
                if line == b"event: work":
                    job = self.claim()
                    if job:
                        self.claims.append((time.monotonic(), job))

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = self._http.post(f"{self._url}/{path}", json=body, timeout=10)
        if answer.status_code >= 400:
            raise RuntimeError(f"{path}: {answer.status_code} {answer.text}")
        result: dict[str, Any] = answer.json()
        return result

    def _registration(self, name: str, max_cpu: int) -> dict[str, Any]:
        capabilities = {
            "worker_id": self.id,
            "name": name,
            "os": "linux",
            "arch": "x86_64",
            "hostname": name,
            "worker_version": "bench",
            "executor": "process",
            "features": ["cpu"],
            "max_jobs": {"gpu": 0, "cpu": max_cpu},
            "gpu_count": 0,
        }
        return {"capabilities": capabilities, "gpus": [], "gateway_url": None, "holds": [], "doctor": []}
