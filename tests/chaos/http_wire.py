"""The protocol over a real socket: JSON, a bearer credential, and connections that break at the worst moment."""

from __future__ import annotations

import http.client
import json
import uuid
from collections.abc import Sequence
from typing import Any, ClassVar

from tests.chaos.wire import About, Answer, Claimed, Hold, Loss, Lost, Reading, Receipt, Refused, Said, Told, Wire

SECONDS = 60.0  # a guard against hanging
BUSY = (429, 502, 503, 504)  # passes by itself; the worker asks again later


class HttpWire(Wire):
    """One worker's connection to the web process on `port`."""

    port: ClassVar[int] = 0

    def __init__(self, credential: str) -> None:
        super().__init__(credential)
        self._open: http.client.HTTPConnection | None = None

    def __deepcopy__(self, memo: dict[int, Any]) -> HttpWire:
        return type(self)(self.credential)

    def close(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None

    def register(self, about: About, gpus: Sequence[Reading], holds: Sequence[Hold] | None, *, loss: Loss) -> Answer:
        body = {
            "capabilities": {
                "worker_id": str(self.worker_id),
                "worker_version": "1",
                "executor": "docker",
                "max_jobs": {"gpu": about.max_gpu, "cpu": about.max_cpu},
                "features": list(about.features),
                "gpu_count": len(gpus),
            },
            "gpus": [_gpu(gpu) for gpu in gpus],
            "gateway_url": None,
            "holds": _holds(holds),
            "doctor": [],
        }
        return _answer(self._post("register", body, loss))

    def heartbeat(
        self,
        session: int,
        beat: int,
        paused: str | None,
        gpus: Sequence[Reading],
        holds: Sequence[Hold] | None,
        *,
        loss: Loss,
    ) -> Answer:
        body = {
            "session": session,
            "beat": beat,
            "accepting": paused is None,
            "paused_reason": paused,
            "gpus": [_gpu(gpu) for gpu in gpus],
            "holds": _holds(holds),
        }
        answer = _answer({"session": session, **self._post(f"{self.worker_id}/heartbeat", body, loss)})
        return answer

    def claim(
        self, session: int, gpu: int, cpu: int, gpus: Sequence[Reading], key: str, *, loss: Loss
    ) -> Claimed | None:
        body = {"session": session, "free_slots": {"gpu": gpu, "cpu": cpu}, "gpus": [_gpu(each) for each in gpus]}
        found = self._post(f"{self.worker_id}/jobs/claim", body, loss, {"Idempotency-Key": key})
        if not found:
            return None
        return Claimed(
            job=uuid.UUID(found["id"]),
            lease=uuid.UUID(found["lease"]),
            mode=found["mode"],
            owner_repo=f"{found['owner']}/{found['repo']}",
            gpus=tuple(found["gpus"]),
            vram_mib=found["requirements"]["vram_mib"],
        )

    def report(self, session: int, job: uuid.UUID, lease: uuid.UUID, events: Sequence[Said], *, loss: Loss) -> Receipt:
        said = [{"seq": event.seq, "kind": event.kind, **event.data} for event in events]
        body = {"session": session, "lease": str(lease), "events": said, "logs": []}
        taken = self._post(f"{self.worker_id}/jobs/{job}/events", body, loss)
        return Receipt(taken["accepted_through"], taken["state"], taken["stop"] is not None)

    def renew(self, session: int, job: uuid.UUID, lease: uuid.UUID, *, loss: Loss) -> None:
        self._post(f"{self.worker_id}/jobs/{job}/lease", {"session": session, "lease": str(lease)}, loss)

    def _post(self, path: str, body: dict[str, Any], loss: Loss, headers: dict[str, str] | None = None) -> Any:
        """Send one call. Raises Lost where the answer is not to arrive, and Refused."""
        if loss is Loss.REQUEST:
            raise Lost
        head = {"Authorization": f"Bearer {self.credential}", "Content-Type": "application/json", **(headers or {})}
        try:
            if self._open is None:
                self._open = http.client.HTTPConnection("127.0.0.1", self.port, timeout=SECONDS)
            self._open.request("POST", f"/api/v1/workers/{path}", json.dumps(body), head)
            if loss is Loss.CUT:  # it may be done, or not, or while we go on
                raise Lost
            if loss is Loss.ANSWER:  # it is done: its answer begins to arrive
                self._open.sock.recv(1)
                raise Lost
            response = self._open.getresponse()
            raw = response.read()
        except (OSError, http.client.HTTPException, Lost):
            self.close()
            raise Lost from None
        return self._content(response.status, raw)

    def _content(self, status: int, raw: bytes) -> Any:
        content = json.loads(raw) if raw else {}
        if status < 400:
            return content
        if status in BUSY and content.get("code") != "gpu_workers_disabled":
            raise Lost
        assert status < 500 or "code" in content, f"the control plane answered {status}: {raw[:500]!r}"
        raise Refused(content["code"], content.get("expected_seq"))


def _gpu(gpu: Reading) -> dict[str, Any]:
    return {
        "uuid": gpu.uuid,
        "index": gpu.index,
        "vendor": "NVIDIA",
        "model": "NVIDIA GeForce RTX 4090",
        "total_vram_mib": gpu.total_mib,
        "free_vram_mib": gpu.free_mib,
        "ours": [{"lease": str(lease), "mib": mib} for lease, mib in gpu.ours],
        "foreign": [{"pid": 4711, "name": "python", "mib": gpu.foreign_mib}] if gpu.foreign_mib else [],
        "healthy": gpu.healthy,
        "simulated": False,
    }


def _holds(holds: Sequence[Hold] | None) -> list[dict[str, str]] | None:
    return None if holds is None else [{"lease": str(hold.lease), "state": hold.state} for hold in holds]


def _answer(content: dict[str, Any]) -> Answer:
    told = tuple(Told(uuid.UUID(each["lease"]), each["want"], each.get("next_seq")) for each in content["leases"])
    return Answer(content["session"], content["standing"], told)
