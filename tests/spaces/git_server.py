"""The data plane's git behind a real server, and a job in a worker's hands that may read from it."""

from __future__ import annotations

import base64
import http.client
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from jobs.lifecycle import Report, record
from jobs.models import Lease
from tests.spaces.repositories import git
from workers.models import Worker


@dataclass
class Claimed:
    """A job in a worker's hands."""

    worker: Worker
    lease: Lease
    seq: int = 0

    def report(self, *kinds: str) -> None:
        reports = []
        for kind in kinds:
            self.seq += 1
            reports.append(Report(self.seq, kind, {"image_id": "sha256:1"} if kind == "running" else {}))
        record(self.worker.pk, session=1, job_id=self.lease.job_id, lease_id=self.lease.pk, reports=reports, logs=[])


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def fetch(server: str, path: str, revision: str, authorization: str, into: Path, *options: str) -> Any:
    """Fetch one commit as the worker does: the header travels in the environment only."""
    assert git("init", "--quiet", str(into)).returncode == 0
    header = {
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": f"http.{server}/.extraHeader",
        "GIT_CONFIG_VALUE_0": f"Authorization: {authorization}",
    }
    return git(*options, "fetch", "--quiet", "--depth", "1", f"{server}{path}", revision, cwd=into, env=header)


def ask(
    server: str,
    method: str,
    path: str,
    *,
    authorization: str | None = None,
    body: bytes | None = None,
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    where = urlsplit(server)
    client = http.client.HTTPConnection(where.hostname or "", where.port, timeout=30)
    try:
        sent = {**({"Authorization": authorization} if authorization else {}), **(headers or {})}
        client.request(method, path, body=body, headers=sent)
        answer = client.getresponse()
        return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()
    finally:
        client.close()
