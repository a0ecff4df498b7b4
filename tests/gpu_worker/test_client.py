"""What the client tries again and what it does not, and which error an answer becomes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gpu_worker import client as client_module
from gpu_worker.client import ControlPlane
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
from tests.gpu_worker.schemas import WIRE, golden

Answer = tuple[int, dict[str, str], Any]
FREE = {"gpu": 0, "cpu": 1}


class Script:
    """A server that gives the next scripted answer to each request; None cuts the connection."""

    def __init__(self) -> None:
        self.answers: list[Answer | None] = []
        self.seen: list[tuple[str, str, dict[str, str], Any]] = []
        script = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None:
                pass

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                script.seen.append((self.command, self.path, dict(self.headers), json.loads(body) if body else None))
                answer = script.answers.pop(0)
                if answer is None:
                    return
                status, headers, content = answer
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(data))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_DELETE = do_GET = do_POST

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

    def refuse(self, code: str) -> None:
        statuses = json.loads((WIRE / "error.schema.json").read_text())["x-statuses"]
        self.answers.append((statuses[code], {}, json.loads((WIRE / "errors" / f"{code}.json").read_text())))


@pytest.fixture
def script() -> Iterator[Script]:
    script = Script()
    yield script
    script.server.shutdown()
    script.server.server_close()


@pytest.fixture
def client(script: Script, monkeypatch: pytest.MonkeyPatch) -> Iterator[ControlPlane]:
    monkeypatch.setattr(client_module, "FIRST_BACKOFF_SECONDS", 0.01)
    client = ControlPlane(script.url)
    client.credential = Credential(golden("enroll.response")["minimal"]["credential"])
    client.session = 7
    yield client
    client.close()


def claim(client: ControlPlane) -> Any:
    return client.claim(key="a-key", free_slots=FREE, gpus=[])


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_what_may_pass_is_tried_again_with_the_same_key(client: ControlPlane, script: Script, status: int) -> None:
    script.answers = [(status, {"Retry-After": "0"}, b"busy"), None, (200, {}, golden("claim.response")["full"])]

    assert claim(client).repo == "rtx4090-matrix-lab"
    assert {headers["Idempotency-Key"] for _, _, headers, _ in script.seen} == {"a-key"}
    assert [body["session"] for *_, body in script.seen] == [7, 7, 7]


def test_after_some_tries_it_gives_up_for_now(client: ControlPlane, script: Script) -> None:
    script.answers = [None] * 10

    with pytest.raises(Unreachable):
        claim(client)
    assert len(script.seen) == client_module.DEFAULT_TRIES


@pytest.mark.parametrize("status", [400, 403, 404, 409, 413, 422, 500])
def test_anything_else_is_not_tried_again(client: ControlPlane, script: Script, status: int) -> None:
    script.answers = [(status, {}, {"code": "odd_code", "detail": "A sentence."})]

    with pytest.raises(Refused, match="A sentence") as refusal:
        claim(client)
    assert (refusal.value.status, refusal.value.code) == (status, "odd_code")
    assert len(script.seen) == 1


def test_a_heartbeat_is_its_own_retry(client: ControlPlane, script: Script) -> None:
    script.answers = [(503, {}, b"")]

    with pytest.raises(Unreachable):
        client.heartbeat({"beat": 1})
    assert len(script.seen) == 1


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("credential_invalid", CredentialInvalid), ("credential_revoked", Revoked), ("lease_stale", LeaseStale),
        ("session_superseded", Superseded), ("event_gap", EventGap), ("worker_disabled", Refused), ("invalid", Refused),
    ],
)  # fmt: skip
def test_each_code_becomes_its_error(client: ControlPlane, script: Script, code: str, error: type[Exception]) -> None:
    script.refuse(code)

    with pytest.raises(error) as caught:
        claim(client)
    assert type(caught.value) is error


def test_the_gap_says_what_is_expected(client: ControlPlane, script: Script) -> None:
    script.refuse("event_gap")

    with pytest.raises(EventGap) as gap:
        client.report(job="j", lease="l", events=[], logs=[])
    assert gap.value.expected_seq == 3


def test_a_revocation_without_its_proof_is_only_an_invalid_credential(client: ControlPlane, script: Script) -> None:
    script.answers = [(401, {}, {"code": "credential_revoked", "detail": "Go away.", "proof": "0" * 64})]

    with pytest.raises(CredentialInvalid):
        claim(client)


def test_a_redirect_is_not_followed_but_explained(client: ControlPlane, script: Script) -> None:
    script.answers = [(301, {"Location": "https://elsewhere.example/"}, b"")]

    with pytest.raises(Refused, match=r"redirects to https://elsewhere\.example/; set OPENFACE_URL"):
        claim(client)
    assert len(script.seen) == 1


def test_an_answer_that_is_no_json_is_named(client: ControlPlane, script: Script) -> None:
    script.answers = [(200, {}, b"<html>a captive portal</html>")]

    with pytest.raises(WireError, match="not JSON"):
        claim(client)


def test_nothing_to_do_is_none(client: ControlPlane, script: Script) -> None:
    script.answers = [(204, {}, b"")]

    assert claim(client) is None


def test_the_credential_goes_along_and_is_never_shown(client: ControlPlane, script: Script) -> None:
    script.answers = [(204, {}, b"")]
    claim(client)

    credential = client.credential
    assert credential is not None
    assert script.seen[0][2]["Authorization"] == f"Bearer {credential.text}"
    assert credential.text not in repr(credential)
