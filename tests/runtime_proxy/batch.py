"""A batch job under a lease, and a worker that delivers its results over real HTTP."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from jobs.models import Job, Lease
from jobs.tokens import runtime_token
from tests.factories import UptimeFactory, WorkerFactory
from tests.runtime_proxy.conftest import lease_to
from tests.runtime_proxy.data_plane import Answer, DataPlane
from tests.spaces.repositories import make_space


def content_digest(content: bytes) -> str:
    return f"sha-256=:{base64.b64encode(hashlib.sha256(content).digest()).decode()}:"


@dataclass
class Delivering:
    """The worker's side."""

    job: Job
    lease: Lease
    plane: DataPlane

    @property
    def root(self) -> str:
        return f"/artifacts/{self.job.pk}"

    @property
    def authorization(self) -> str:
        return f"Bearer {runtime_token(self.lease)}"

    def put(self, path: str, content: bytes, *, digest: str | None = None, raw: bool = False, **headers: str) -> Answer:
        fields = {"Authorization": self.authorization, "Content_Digest": digest or content_digest(content), **headers}
        return self.plane.get(f"{self.root}/{path if raw else quote(path)}", method="PUT", body=content, **fields)

    def inventory(self) -> dict[str, Any]:
        answer = self.plane.get(self.root, Authorization=self.authorization)
        assert answer.status == 200, answer.body
        return dict(json.loads(answer.body))

    def where(self, path: str) -> str:
        """Where people find it."""
        return f"/results/{self.job.owner}/{self.job.repo}/{self.job.pk}/{quote(path)}"


def batch_job(plane: DataPlane, full_name: str = "alice/bench", **wishes: Any) -> Delivering:
    """A running batch job of a Space with that visibility."""
    UptimeFactory.create()
    space = make_space(full_name, topics=("benchmark",), visibility=wishes.pop("visibility", "public"))
    job = lease_to(space, WorkerFactory.create(), mode="batch", kind="benchmark", **wishes)
    return Delivering(job, job.leases.get(), plane)
