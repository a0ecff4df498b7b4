"""The control plane as this worker calls it: one method per endpoint, typed answers, typed errors.

Every call has a connect and a read timeout. Only what may pass by itself is tried again (connection errors, 429,
502, 503, 504), with jittered backoff; every call is idempotent by its content, so a repeat does no harm.
Methods may be called from any thread.
"""

from __future__ import annotations

import hmac
import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

import requests
from requests.auth import AuthBase

from gpu_worker import __version__
from gpu_worker.artifact_client import ArtifactClient
from gpu_worker.credentials import Credential
from gpu_worker.errors import (
    CredentialInvalid,
    EventGap,
    LeaseStale,
    Refused,
    Revoked,
    Superseded,
    Unreachable,
    WireError,
)
from gpu_worker.http_answers import Bearer, error_body, explain, is_loopback, json_of, retry_after, sentence_of
from gpu_worker.protocol import Claim, Desired, Enrollment, Event, JsonObject, LogChunk, Receipt, read_expiry

CONNECT_TIMEOUT_SECONDS = 5.0
READ_TIMEOUT_SECONDS = 15.0
SIGNAL_READ_TIMEOUT_SECONDS = 40.0  # the server writes a comment each 15 s; two may be lost
RETRIED_STATUSES = frozenset({429, 502, 503, 504})
FIRST_BACKOFF_SECONDS = 0.25
LONGEST_BACKOFF_SECONDS = 5.0
DEFAULT_TRIES = 4


class ControlPlane:
    """Calls under one base address. *closing* ends the waits between tries."""

    def __init__(self, url: str, *, verify_tls: bool | str = True, closing: threading.Event | None = None) -> None:
        self._base = f"{url}/api/v1/"
        self._verify = verify_tls
        self._closing = closing or threading.Event()
        self._local = threading.local()
        self._direct = is_loopback(url)
        self.credential: Credential | None = None
        self.session = 0
        """The number that register gave us; every later call carries it."""

    # -- the endpoints -----------------------------------------------------------------------------------------

    def enroll(self, *, token: str, nonce: str, hostname: str, gateway_url: str | None) -> Enrollment:
        body = {
            "token": token,
            "nonce": nonce,
            "hostname": hostname,
            "version": __version__,
            "gateway_url": gateway_url,
        }
        return Enrollment.read(self._post("workers/enroll", body))

    def register(
        self,
        *,
        capabilities: JsonObject,
        gpus: Sequence[JsonObject],
        gateway_url: str | None,
        holds: Sequence[JsonObject] | None,
        doctor: Sequence[JsonObject],
    ) -> Desired:
        """Open a new session; keeps its number for the later calls."""
        body = {
            "capabilities": capabilities,
            "gpus": list(gpus),
            "gateway_url": gateway_url,
            "holds": None if holds is None else list(holds),
            "doctor": list(doctor),
        }
        desired = Desired.read(self._post("workers/register", body, tries=1))
        if desired.session is None:
            raise WireError("the register answer lacks session")
        self.session = desired.session
        return desired

    def heartbeat(self, body: JsonObject, *, read_timeout: float = READ_TIMEOUT_SECONDS) -> Desired:
        """One beat, one try: the next beat is the retry."""
        return Desired.read(
            self._post(self._mine("heartbeat"), {"session": self.session, **body}, tries=1, read_timeout=read_timeout)
        )

    def claim(self, *, key: str, free_slots: JsonObject, gpus: Sequence[JsonObject]) -> Claim | None:
        """Take one job, or None. The same *key* repeats the answer of a claim whose answer was lost."""
        body = {"session": self.session, "free_slots": free_slots, "gpus": list(gpus)}
        answer = self._post(self._mine("jobs/claim"), body, headers={"Idempotency-Key": key})
        return None if answer is None else Claim.read(answer)

    def report(
        self, *, job: str, lease: str, events: Sequence[Event], logs: Sequence[LogChunk], tries: int = 1
    ) -> Receipt:
        body = {
            "session": self.session,
            "lease": lease,
            "events": [event.wire() for event in events],
            "logs": [chunk.wire() for chunk in logs],
        }
        return Receipt.read(self._post(self._mine(f"jobs/{job}/events"), body, tries=tries))

    def renew(self, *, job: str, lease: str) -> float:
        """Renew one lease; seconds until it ends now. Raises LeaseStale when it is not ours any more."""
        return read_expiry(
            self._post(self._mine(f"jobs/{job}/lease"), {"session": self.session, "lease": lease}, tries=1)
        )

    def artifacts(self, url: str, token: Callable[[], str | None]) -> ArtifactClient:
        """Where a job's results go: the data plane, opened by a token of the lease. For this thread."""
        return ArtifactClient(self._http(), url, token, verify=self._verify)

    def leave(self) -> None:
        """Revoke this worker's own credential."""
        self._call("DELETE", self._mine(""), None)

    def signals(self) -> Iterator[str]:
        """The names of the events on the signal stream, until it breaks (Unreachable). Comments come as ''."""
        url = self._base + self._mine("signals")
        try:
            with self._http().get(
                url,
                headers={"Accept": "text/event-stream"},
                stream=True,
                verify=self._verify,
                allow_redirects=False,
                auth=self._auth(),
                timeout=(CONNECT_TIMEOUT_SECONDS, SIGNAL_READ_TIMEOUT_SECONDS),
            ) as response:
                if response.status_code != 200:
                    raise self._refusal(response)
                yield ""
                for line in response.iter_lines(chunk_size=1):
                    if line.startswith(b"event:"):
                        yield line[6:].strip().decode(errors="replace")
                    elif line.startswith(b":"):
                        yield ""
        except requests.RequestException as problem:
            raise Unreachable(explain(problem)) from problem

    def close(self) -> None:
        """Close this thread's connections."""
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is not None:
            session.close()

    # -- the machinery -----------------------------------------------------------------------------------------

    def _mine(self, path: str) -> str:
        if self.credential is None:
            raise CredentialInvalid(401, "credential_invalid", "This worker has no credential.")
        return f"workers/{self.credential.worker_id}/{path}".rstrip("/")

    def _post(
        self,
        path: str,
        body: JsonObject,
        *,
        tries: int = DEFAULT_TRIES,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
    ) -> object:
        return self._call("POST", path, body, tries=tries, headers=headers, read_timeout=read_timeout)

    def _call(
        self,
        method: str,
        path: str,
        body: JsonObject | None,
        *,
        tries: int = DEFAULT_TRIES,
        headers: Mapping[str, str] | None = None,
        read_timeout: float = READ_TIMEOUT_SECONDS,
    ) -> object:
        backoff = FIRST_BACKOFF_SECONDS
        for left in reversed(range(tries)):
            pause = backoff * random.uniform(0.5, 1.5)  # jitter: a fleet must not come back in step
            try:
                response = self._send(method, path, body, headers or {}, read_timeout)
            except requests.RequestException as problem:
                if not left:
                    raise Unreachable(explain(problem)) from problem
            else:
                if response.status_code == 204:
                    return None
                if response.status_code < 300:
                    return json_of(response)
                if response.status_code not in RETRIED_STATUSES:
                    raise self._refusal(response)
                if not left:
                    raise Unreachable(sentence_of(response))
                pause = max(pause, retry_after(response))
            if self._closing.wait(pause):
                raise Unreachable("the worker is stopping")
            backoff = min(backoff * 2, LONGEST_BACKOFF_SECONDS)
        raise AssertionError("tries is at least 1")

    def _send(
        self, method: str, path: str, body: JsonObject | None, headers: Mapping[str, str], read_timeout: float
    ) -> requests.Response:
        # ensure_ascii off: a log in Japanese would grow threefold and hit the size limit
        data = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return self._http().request(
            method,
            self._base + path,
            data=data,
            headers={"Content-Type": "application/json", **headers},
            auth=self._auth(),
            verify=self._verify,
            allow_redirects=False,
            timeout=(CONNECT_TIMEOUT_SECONDS, read_timeout),
        )

    def _http(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = self._local.session = requests.Session()
            session.headers["User-Agent"] = f"openface-gpu-worker/{__version__}"
            session.trust_env = not self._direct  # a proxy from the environment cannot reach our own loopback
        return session

    def _auth(self) -> AuthBase:
        return Bearer(self.credential.text if self.credential else None)

    def _refusal(self, response: requests.Response) -> Exception:
        """The typed error for an answer that is not worth a retry."""
        status, body = response.status_code, error_body(response)
        code, detail = body.get("code"), body.get("detail")
        if not isinstance(code, str) or not isinstance(detail, str):
            return Refused(status, "unknown", sentence_of(response))
        if code == "credential_revoked" and self._proves_revocation(body.get("proof")):
            return Revoked(detail)
        if code in ("credential_revoked", "credential_invalid"):
            # an unproven revocation may be anybody's answer on a plain network: as good as an invalid credential
            return CredentialInvalid(status, code, detail)
        if code == "session_superseded":
            return Superseded(detail)
        if code == "lease_stale":
            return LeaseStale(status, code, detail)
        if code == "event_gap" and isinstance(body.get("expected_seq"), int):
            return EventGap(status, code, detail, expected_seq=int(str(body["expected_seq"])))
        return Refused(status, code, detail)

    def _proves_revocation(self, proof: object) -> bool:
        return (
            self.credential is not None
            and isinstance(proof, str)
            and hmac.compare_digest(
                proof, self.credential.prove("revoked:" + self.credential.worker_id.replace("-", ""))
            )
        )
