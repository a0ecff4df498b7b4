"""The data plane as a batch job's results reach it: what is there already, one result, and what was left out.

One try per call: the caller waits and goes on from what is there. The token is the lease's, never the worker's
credential. Methods are for one thread.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import requests

from gpu_worker.errors import CredentialInvalid, LeaseStale, Refused, Unreachable
from gpu_worker.http_answers import Bearer, error_body, explain, json_of, sentence_of
from gpu_worker.protocol import Fields, JsonObject
from gpu_worker.result_files import Quota, ResultFile, Skipped

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 300.0  # a server makes gigabytes durable before it answers
PASSING_STATUSES = frozenset({429, 500, 502, 503, 504})
LEFT_OUT_AT_ONCE = 100


@dataclass(frozen=True)
class Inventory:
    """What the server has of this lease, by path, and how much it takes."""

    digests: Mapping[str, str]
    quota: Quota

    @classmethod
    def read(cls, message: object) -> Inventory:
        """Raises WireError."""
        fields = Fields(message, "artifacts answer")
        return cls(
            digests={file.text("path"): file.text("sha256") for file in fields.objects("files")},
            quota=Quota(
                file_bytes=fields.integer("max_file_bytes"),
                job_bytes=fields.integer("max_job_bytes"),
                files=fields.integer("max_files"),
            ),
        )


class ArtifactClient:
    def __init__(
        self, session: requests.Session, url: str, token: Callable[[], str | None], *, verify: bool | str
    ) -> None:
        """*token*: asked for each call, since the server may give the lease a new one."""
        self._session, self._url, self._token, self._verify = session, url, token, verify

    def inventory(self) -> Inventory:
        """Raises Unreachable, CredentialInvalid, LeaseStale, Refused, WireError; so do the others."""
        return Inventory.read(json_of(self._call("GET", "")))

    def put(self, file: ResultFile, content: Iterable[bytes]) -> None:
        """Deliver one result; *content* is read as it is sent."""
        digest = base64.b64encode(bytes.fromhex(file.sha256)).decode()
        body = _Sized(content, file.size) if file.size else b""
        self._call("PUT", "/" + quote(file.path), data=body, headers={"Content-Digest": f"sha-256=:{digest}:"})

    def leave_out(self, skipped: Sequence[Skipped]) -> None:
        """Say what is not delivered, and why."""
        entries: list[JsonObject] = [
            {"path": one.path, "size": one.size, "reason": one.reason} for one in skipped[:LEFT_OUT_AT_ONCE]
        ]
        body = json.dumps({"left_out": entries}, ensure_ascii=False).encode("utf-8", "replace")
        self._call("POST", "", data=body, headers={"Content-Type": "application/json"})

    def _call(self, method: str, path: str, **options: Any) -> requests.Response:
        try:
            response = self._session.request(
                method,
                self._url + path,
                auth=Bearer(self._token()),
                verify=self._verify,
                allow_redirects=False,
                timeout=(CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS),
                **options,
            )
        except requests.RequestException as problem:
            raise Unreachable(explain(problem)) from problem
        if response.status_code < 300:
            return response
        raise _refusal(response)


class _Sized:
    """A body of known length that is made while it is sent."""

    def __init__(self, content: Iterable[bytes], size: int) -> None:
        self._content, self._size = content, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._content)


def _refusal(response: requests.Response) -> Exception:
    status, body = response.status_code, error_body(response)
    code, detail = str(body.get("code", "unknown")), str(body.get("detail", sentence_of(response)))
    if status in PASSING_STATUSES:
        return Unreachable(detail)
    if code == "lease_stale":
        return LeaseStale(status, code, detail)
    if status == 401:
        return CredentialInvalid(status, code, detail)
    return Refused(status, code, detail)
