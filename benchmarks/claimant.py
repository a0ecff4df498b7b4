"""A worker with two large GPUs that claims, and gives back what it got. Plain HTTP on one kept connection."""

from __future__ import annotations

import http.client
import json
import time
import uuid
from typing import Any
from urllib.parse import urlsplit

GPU_MIB = 24_564
TIMEOUT_SECONDS = 60.0


class Claimant:
    """One enrolled worker. `cpu` is how many CPU jobs it takes at once; its GPUs are whole and idle."""

    def __init__(self, url: str, token: str, name: str, *, cpu: int = 0) -> None:
        parts = urlsplit(url)
        self._http = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_SECONDS)
        self._headers = {"Content-Type": "application/json"}
        self._cpu = cpu
        self._beat = 0
        self._gpus = [] if cpu else [self._gpu(index) for index in range(2)]
        hello = {"token": token, "nonce": uuid.uuid4().hex, "hostname": name, "version": "bench"}
        enrolled = self._post("enroll", hello)
        self.id = enrolled["worker_id"]
        self._headers["Authorization"] = f"Bearer {enrolled['credential']}"
        self.session = self._post("register", {"capabilities": self._capabilities(), "gpus": self._gpus, "holds": []})[
            "session"
        ]

    def claim(self) -> tuple[dict[str, Any] | None, float]:
        """Ask for a job; return it, or None, and the milliseconds that the answer took."""
        slots = {"gpu": 0 if self._cpu else 2, "cpu": self._cpu}
        body = {"session": self.session, "free_slots": slots, "gpus": self._gpus}
        began = time.perf_counter()
        job = self._post(f"{self.id}/jobs/claim", body, {"Idempotency-Key": uuid.uuid4().hex})
        return job, (time.perf_counter() - began) * 1000

    def give_back(self, job: dict[str, Any]) -> None:
        """Decline the job, so that it stands in the line as before, and say that nothing is left of it."""
        declined = {"seq": 1, "kind": "declined", "reason": "shutdown"}
        batch = {"session": self.session, "lease": job["lease"], "events": [declined], "logs": []}
        self._post(f"{self.id}/jobs/{job['id']}/events", batch)
        self._beat += 1
        beat = {"session": self.session, "beat": self._beat, "accepting": True, "gpus": self._gpus, "holds": []}
        self._post(f"{self.id}/heartbeat", beat)

    def hang_up(self) -> None:
        """Close the connection; the next call opens another."""
        self._http.close()

    def _post(self, path: str, body: dict[str, Any], headers: dict[str, str] | None = None) -> Any:
        self._http.request("POST", f"/api/v1/workers/{path}", json.dumps(body), self._headers | (headers or {}))
        answer = self._http.getresponse()
        text = answer.read()
        if answer.status >= 400:
            raise RuntimeError(f"{path}: {answer.status} {text.decode()}")
        return json.loads(text) if text else None

    def _gpu(self, index: int) -> dict[str, Any]:
        return {
            "uuid": f"GPU-{uuid.uuid4()}",
            "index": index,
            "vendor": "NVIDIA",
            "model": "NVIDIA GeForce RTX 4090",
            "total_vram_mib": GPU_MIB,
            "free_vram_mib": GPU_MIB - 400,
            "ours": [],
            "foreign": [],
            "compute_capability": "8.9",
            "mig": False,
            "healthy": True,
            "simulated": False,
        }

    def _capabilities(self) -> dict[str, Any]:
        return {
            "worker_id": self.id,
            "worker_version": "bench",
            "executor": "docker",
            "features": ["cpu"] if self._cpu else ["cpu", "nvidia", "cuda"],
            "max_jobs": {"gpu": 0 if self._cpu else 2, "cpu": self._cpu},
            "gpu_count": len(self._gpus),
        }
