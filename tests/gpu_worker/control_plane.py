"""A small control plane over real HTTP, with git: the worker's other side where Django is not installed.

It keeps the wire's promises (tokens, sessions, event numbers, offsets, one desired list) and checks every message it
gets against the schemas. What it saw stays in plain attributes for the tests to read.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import subprocess
import threading
import time
import urllib.parse
import uuid
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.gpu_worker.schemas import complaints

FAST = {"heartbeat_seconds": 0.3, "lease_seconds": 5, "stale_seconds": 5, "poll_seconds": 0.4}
LEASE_KEY = b"a lease key of the tests"
SERVING = ("running",)


@dataclass
class Lease:
    """One claim's life as the server sees it."""

    claim: dict[str, Any]
    state: str = "leased"
    want: str = "keep"
    grace_s: float = 2
    events: list[dict[str, Any]] = field(default_factory=list)
    logs: dict[str, str] = field(default_factory=lambda: {"build": "", "run": "", "system": ""})
    released: bool = False
    cleared: bool = False
    missed: int = 0
    renewals: int = 0
    results: dict[str, bytes] = field(default_factory=dict)
    left_out: list[dict[str, Any]] = field(default_factory=list)

    @property
    def id(self) -> str:
        return str(self.claim["lease"])

    def kinds(self) -> list[str]:
        return [event["kind"] for event in self.events]

    def moves(self) -> list[str]:
        """The same without what moves nothing: an adopted app's health is told whenever it was looked at."""
        return [kind for kind in self.kinds() if kind != "health"]

    def offsets(self) -> dict[str, int]:
        return {name: len(text.encode()) for name, text in self.logs.items()}


class ControlPlane:
    def __init__(self, git_root: Path, *, host: str = "127.0.0.1") -> None:
        self.git_root, self.host = git_root, host
        self.intervals = dict(FAST)
        self.tokens: dict[str, tuple[str, str | None]] = {}
        self.worker_id: str | None = None
        self.secret_hash = b""
        self.session = 0
        self.sessions_opened = 0
        self.standing = "open"
        self.gateway: str | None = "ok"
        self.gateway_words: dict[str, str | None] = {}
        """What else is told of it: gateway_url, gateway_detail."""
        self.queue: list[dict[str, Any]] = []
        self.leases: dict[str, Lease] = {}
        self.claims: dict[str, str] = {}
        self.registers: list[dict[str, Any]] = []
        self.beats: list[dict[str, Any]] = []
        self.wire_faults: list[str] = []
        self.git_hits: list[str] = []
        self.requests = 0
        """Calls of any kind that arrived."""
        self.artifact_quota = {"max_file_bytes": 10**9, "max_job_bytes": 10**9, "max_files": 1000}
        self.artifact_calls: list[str] = []
        self.lose_next_results = 0
        """So many deliveries of a result are cut off in their middle."""
        self.results_taken: int | None = None
        """After so many results no more are taken for now; None: all are."""
        self.revoked = False
        self.outage = threading.Event()
        """While set every call is cut without an answer."""
        self.deaf = threading.Event()
        """While set every call is taken and none is answered."""
        self.lose_next_answers = 0
        """So many answers to claims are lost after the work is done."""
        self.lock = threading.RLock()
        self._wake = threading.Condition()
        self._signals: list[str] = []
        self._server = _Server((host, 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    # -- for tests ---------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._wake.notify_all()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self._server.server_address[1]}"

    def issue_token(self, name: str = "gpu1") -> str:
        token = f"oft_{uuid.uuid4().hex}"
        self.tokens[token] = (name, None)
        return token

    def queue_job(self, repo: str, revision: str, **changes: Any) -> str:
        """Queue a CPU service of ``alice/<repo>``; its job id."""
        job = str(uuid.uuid4())
        self.queue.append(
            {
                "id": job, "attempt": 1, "kind": "cpu", "mode": "service", "owner": "alice", "repo": repo,
                "repository_id": f"r-{repo}", "revision": revision, "clone_url": f"{self.url}/git/alice/{repo}.git",
                "base_path": f"/run/alice/{repo}/", "port": 7860, "requirements": {"kind": "cpu", "gpu_count": 0},
                "gpus": [], "environment": {}, "secrets": {}, "build_args": {}, "limits": {},
                "lease_expires_in_s": self.intervals["lease_seconds"], **changes,
            }
        )  # fmt: skip
        self.signal("work")
        return job

    def lease_of(self, job: str) -> Lease | None:
        """The newest lease of a job."""
        mine = [lease for lease in self.leases.values() if lease.claim["id"] == job]
        return mine[-1] if mine else None

    def state(self, job: str) -> str:
        lease = self.lease_of(job)
        return "queued" if lease is None or any(one["id"] == job for one in self.queue) else lease.state

    def stop_job(self, job: str, *, grace_s: float = 2) -> None:
        lease = self.lease_of(job)
        assert lease is not None
        lease.want, lease.grace_s = "stop", grace_s
        self.signal("stop")

    def runtime_token(self, lease: str) -> str:
        return _token("runtime", lease)

    def signal(self, name: str) -> None:
        with self._wake:
            self._signals.append(name)
            self._wake.notify_all()

    # -- the rules ---------------------------------------------------------------------------------------------

    def enroll(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        token, nonce = body["token"], body["nonce"]
        if token not in self.tokens:
            return 401, _error("token_unknown")
        name, used = self.tokens[token]
        if used not in (None, nonce):
            return 401, _error("token_used")
        self.tokens[token] = (name, nonce)
        secret = base64.urlsafe_b64encode(hmac.digest(token.encode(), nonce.encode(), "sha256")).rstrip(b"=").decode()
        if self.worker_id is None:
            self.worker_id = str(uuid.uuid4())
        self.secret_hash, self.revoked = hashlib.sha256(secret.encode()).digest(), False
        credential = f"ofw_{uuid.UUID(self.worker_id).hex}_{secret}"
        return 201, {"worker_id": self.worker_id, "name": name, "credential": credential, "intervals": self.intervals}

    def register(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.registers.append(body)
        self.session += 1
        self._compare(body["holds"], beats=1)
        return 200, {"session": self.session, **self._answer(body["holds"])}

    def heartbeat(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        self.beats.append(body)
        self._compare(body["holds"], beats=2)
        return 200, self._answer(body["holds"])

    def _compare(self, holds: list[dict[str, Any]] | None, *, beats: int) -> None:
        """Clear what the worker no longer lists; re-queue or fail what it should still have."""
        if holds is None:
            return
        listed = {hold["lease"] for hold in holds}
        for lease in self.leases.values():
            if lease.id in listed:
                lease.missed = 0
            elif lease.released:
                lease.cleared = True
            else:
                lease.missed += 1
                if lease.missed >= beats:
                    lease.released = lease.cleared = True
                    if lease.state in SERVING:
                        lease.state = "failed"
                    else:
                        lease.state = "queued"
                        again = {
                            key: value for key, value in lease.claim.items() if key not in ("lease", "source_token")
                        }
                        self.queue.insert(0, {**again, "attempt": lease.claim["attempt"] + 1})

    def _answer(self, holds: list[dict[str, Any]] | None) -> dict[str, Any]:
        leases = []
        for hold in holds or []:
            lease = self.leases.get(hold["lease"])
            if lease is None:
                leases.append({"lease": hold["lease"], "want": "hold", "reason": "not known here"})
                continue
            want = "remove" if lease.released else lease.want
            lease.renewals += 1
            leases.append(
                {
                    "lease": lease.id, "want": want, "grace_s": lease.grace_s, "expires_in_s": 5,
                    "next_seq": len(lease.events) + 1, "log_offsets": lease.offsets(),
                    "runtime_token": _token("runtime", lease.id),
                }
            )  # fmt: skip
        return {"intervals": self.intervals, "standing": self.standing, "gateway": self.gateway,
                **self.gateway_words, "leases": leases}  # fmt: skip

    def claim(self, key: str, body: dict[str, Any]) -> tuple[int, dict[str, Any] | None]:
        if key in self.claims:
            return 200, self.leases[self.claims[key]].claim
        free = body["free_slots"]
        for place, job in enumerate(self.queue):
            if free.get(job["kind"], 0) > 0:
                del self.queue[place]
                lease = str(uuid.uuid4())
                claim = {
                    **job, "lease": lease, "source_token": _token("source", lease),
                    "runtime_token": _token("runtime", lease),
                }  # fmt: skip
                self.leases[lease] = Lease(claim)
                self.claims[key] = lease
                return 200, claim
        return 204, None

    def events(self, lease: Lease, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        if lease.released:
            return 409, _error("lease_stale")
        for event in body["events"]:
            expected = len(lease.events) + 1
            if event["seq"] > expected:
                return 409, {**_error("event_gap"), "expected_seq": expected}
            if event["seq"] == expected:
                lease.events.append(event)
                self._move(lease, event["kind"])
        for chunk in body["logs"]:
            have = len(lease.logs[chunk["stream"]].encode())
            text = chunk["text"].encode()
            if chunk["offset"] <= have < chunk["offset"] + len(text):
                lease.logs[chunk["stream"]] += text[have - chunk["offset"] :].decode()
        answer: dict[str, Any] = {
            "accepted_through": len(lease.events), "log_offsets": lease.offsets(), "state": lease.state,
        }  # fmt: skip
        if lease.want == "stop":
            answer["stop"] = {"reason": "stopped by alice", "grace_s": lease.grace_s}
        return 200, answer

    def _artifacts(self, http: BaseHTTPRequestHandler, body: bytes) -> tuple[int, dict[str, Any]]:
        """The data plane's half: results of the lease whose runtime token is shown."""
        self.artifact_calls.append(f"{http.command} {http.path}")
        _, _, job, *names = http.path.split("/", 3)
        shown = http.headers.get("Authorization", "").removeprefix("Bearer ")
        mine = [one for one in self.leases.values() if one.claim["id"] == job and _token("runtime", one.id) == shown]
        if not mine:
            return 401, _error("artifacts_denied")
        if mine[0].released:
            return 409, _error("lease_stale")
        if http.command == "PUT":
            if self.results_taken is not None and len(mine[0].results) >= self.results_taken:
                return 503, _error("storage_full")
            digest = f"sha-256=:{base64.b64encode(hashlib.sha256(body).digest()).decode()}:"
            if http.headers["Content-Digest"] != digest:
                return 422, _error("digest_mismatch")
            mine[0].results[urllib.parse.unquote(names[0])] = body
            return 201, {}
        if http.command == "POST":
            told = json.loads(body)
            self.wire_faults += complaints("artifacts.left_out", told)
            mine[0].left_out = told["left_out"]
        files = [
            {"path": path, "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            for path, content in mine[0].results.items()
        ]
        return 200, {"files": files, **self.artifact_quota}

    def _move(self, lease: Lease, kind: str) -> None:
        final = {"failed": "failed", "stopped": "completed", "exited": "failed"}
        if kind in final:
            lease.state = "completed" if kind == "exited" and lease.events[-1]["code"] == 0 else final[kind]
            lease.released = True
        elif kind == "declined":
            lease.state, lease.released = "queued", True
        elif kind in ("building", "starting", "running"):
            lease.state = kind

    # -- HTTP --------------------------------------------------------------------------------------------------

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        plane = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                plane._serve(self)

            do_POST = do_PUT = do_DELETE = do_GET

        return Handler

    def _serve(self, http: BaseHTTPRequestHandler) -> None:
        if http.command == "PUT" and self.lose_next_results > 0:
            self.lose_next_results -= 1
            http.rfile.read(int(http.headers["Content-Length"]) // 2)
            http.close_connection = True
            return
        self.requests += 1
        body = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        while self.deaf.is_set() and self._thread.is_alive():
            time.sleep(0.05)
        if self.outage.is_set():
            http.close_connection = True
            return
        if http.path.startswith("/git/"):
            self._git(http, body)
            return
        if http.path.startswith("/artifacts/"):
            with self.lock:
                _reply(http, *self._artifacts(http, body))
            return
        match = re.fullmatch(r"/api/v1/workers/([^/]+)(?:/(.*))?", http.path)
        if match is None:
            _reply(http, 404, _error("not_found"))
        elif match[2] == "signals":
            self._stream(http)
        else:
            with self.lock:
                status, answer = self._route(http, match[1], match[2] or "", body)
            if match[2] == "jobs/claim" and status == 200 and self.lose_next_answers > 0:
                self.lose_next_answers -= 1
                http.close_connection = True
                return
            _reply(http, status, answer)

    def _route(self, http: BaseHTTPRequestHandler, who: str, what: str, raw: bytes) -> tuple[int, Any]:
        body = json.loads(raw) if raw else {}
        if who == "enroll":
            self._check("enroll", body)
            return self.enroll(body)
        refusal = self._refuse(http.headers.get("Authorization", ""))
        if refusal is not None:
            return refusal
        if who == "register":
            self._check("register", body)
            return self.register(body)
        if http.command == "DELETE":
            self.revoked = True
            return 204, None
        if body.get("session") != self.session:
            return 409, _error("session_superseded")
        if what in ("heartbeat", "jobs/claim"):
            self._check(what.rpartition("/")[2], body)
            return self.heartbeat(body) if what == "heartbeat" else self.claim(http.headers["Idempotency-Key"], body)
        lease = self.leases.get(body.get("lease", ""))
        if lease is None:
            return 404, _error("not_found")  # not stale: that would remove what must be held
        kind = what.rpartition("/")[2]
        self._check(kind, body)
        if kind == "events":
            return self.events(lease, body)
        lease.renewals += 1
        return (409, _error("lease_stale")) if lease.released else (200, {"expires_in_s": 5})

    def _refuse(self, authorization: str) -> tuple[int, Any] | None:
        secret = authorization.rpartition("_")[2] if authorization.count("_") == 2 else authorization.split("_", 2)[-1]
        if hashlib.sha256(secret.encode()).digest() != self.secret_hash:
            return 401, _error("credential_invalid")
        if self.revoked:
            message = "revoked:" + uuid.UUID(self.worker_id).hex
            return 401, {
                **_error("credential_revoked"),
                "proof": hmac.digest(self.secret_hash, message.encode(), "sha256").hex(),
            }
        return None

    def _check(self, message: str, body: object) -> None:
        self.wire_faults += [f"{message}: {one}" for one in complaints(f"{message}.request", body)]

    def _stream(self, http: BaseHTTPRequestHandler) -> None:
        http.close_connection = True
        if self._refuse(http.headers.get("Authorization", "")):
            _reply(http, 401, _error("credential_invalid"))
            return
        http.send_response(200)
        http.send_header("Content-Type", "text/event-stream")
        http.end_headers()
        seen = len(self._signals)
        deadline = time.monotonic() + 60
        try:
            http.wfile.write(b": open\n\n")
            while time.monotonic() < deadline and self._thread.is_alive():
                with self._wake:
                    self._wake.wait_for(partial(self._more_than, seen), 0.2)
                    fresh, seen = self._signals[seen:], len(self._signals)
                http.wfile.write(b"".join(f"event: {name}\ndata: {{}}\n\n".encode() for name in fresh))
        except OSError:
            pass

    def _more_than(self, seen: int) -> bool:
        return len(self._signals) > seen

    def _git(self, http: BaseHTTPRequestHandler, body: bytes) -> None:
        path, _, query = http.path.removeprefix("/git").partition("?")
        self.git_hits.append(http.path)
        given = http.headers.get("Authorization", "").removeprefix("Basic ")
        user, _, token = base64.b64decode(given).decode().partition(":")
        allowed = {_token("source", lease.id) for lease in self.leases.values() if not lease.released}
        if user != "lease" or token not in allowed:
            _reply(http, 401, _error("credential_invalid"))
            return
        done = subprocess.run(
            ["git", "http-backend"], input=body, capture_output=True, check=False,
            env={
                "PATH": os.environ["PATH"], "GIT_PROJECT_ROOT": str(self.git_root), "GIT_HTTP_EXPORT_ALL": "1",
                "PATH_INFO": path, "QUERY_STRING": query, "REQUEST_METHOD": http.command,
                "CONTENT_TYPE": http.headers.get("Content-Type", ""), "CONTENT_LENGTH": str(len(body)),
                "HTTP_CONTENT_ENCODING": http.headers.get("Content-Encoding", ""),
                "GIT_PROTOCOL": http.headers.get("Git-Protocol", ""), "REMOTE_ADDR": "127.0.0.1",
            },
        )  # fmt: skip
        head, _, content = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().splitlines())
        http.send_response(int(fields.pop("Status", "200").split()[0]))
        for name, value in {**fields, "Content-Length": str(len(content))}.items():
            http.send_header(name, value)
        http.end_headers()
        http.wfile.write(content)


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A caller that gave up waiting is no news."""


def _token(kind: str, lease: str) -> str:
    return hmac.digest(LEASE_KEY, f"{kind}:{lease}".encode(), "sha256").hex()


def _error(code: str) -> dict[str, Any]:
    return {"code": code, "detail": f"A sentence about {code}."}


def _reply(http: BaseHTTPRequestHandler, status: int, answer: Any) -> None:
    content = b"" if answer is None else json.dumps(answer).encode()
    http.send_response(status)
    http.send_header("Content-Type", "application/json")
    http.send_header("Content-Length", str(len(content)))
    http.end_headers()
    http.wfile.write(content)
