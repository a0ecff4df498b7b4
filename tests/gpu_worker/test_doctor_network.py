"""The doctor on the way to the control plane: who does not answer, who is somebody else, and whom to trust."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from gpu_worker.config import WorkerConfig
from gpu_worker.data_dir import RUN, DataDirLock
from gpu_worker.doctor.network import network
from gpu_worker.protocol import DoctorCheck
from gpu_worker.self_report import SelfReport, SelfReportFile
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.worker import free_port

OURS = b'{"code": "credential_invalid", "detail": "No."}'


@contextlib.contextmanager
def server(
    body: bytes = OURS,
    *,
    status: int = 401,
    date: str | None = None,
    time_told: str | None = None,
    tls: tuple[Path, Path] | None = None,
) -> Iterator[str]:
    """Answers everything so; its address. *time_told*: by the control plane itself. *tls*: certificate and key."""

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def date_time_string(self, timestamp: float | None = None) -> str:
            return date or super().date_time_string(timestamp)

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            if time_told is not None:
                self.send_header("X-OpenFace-Time", time_told)
            self.end_headers()
            self.wfile.write(body)

    listening = HTTPServer(("127.0.0.1", 0), Handler)
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        listening.socket = context.wrap_socket(listening.socket, server_side=True)
    thread = threading.Thread(target=listening.serve_forever)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{listening.server_port}"
    finally:
        listening.shutdown()
        thread.join()
        listening.server_close()


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """One that nobody has signed but itself, for 127.0.0.1, and its key."""
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-out", paths[0], "-keyout", paths[1]],
        check=True, capture_output=True,
    )  # fmt: skip
    return paths


def checked(tmp_path: Path, url: str, *, verify_tls: bool | Path = True) -> dict[str, DoctorCheck]:
    return {check.check: check for check in network(WorkerConfig(url=url, data_dir=tmp_path, verify_tls=verify_tls))}


def test_a_control_plane_is_told_with_the_time_it_takes(tmp_path: Path, plane: ControlPlane) -> None:
    checks = checked(tmp_path, plane.url)

    assert checks["control_plane"].ok is True
    assert f"{plane.url} answers in " in str(checks["control_plane"].detail)
    assert checks["clock"].ok is True


def test_nobody_there_is_said_in_the_words_of_the_system(tmp_path: Path) -> None:
    check = checked(tmp_path, f"http://127.0.0.1:{free_port()}")["control_plane"]

    assert (check.ok, str(check.detail).endswith("does not answer: Connection refused")) == (False, True)


def test_a_name_that_nobody_knows_is_said_so(tmp_path: Path) -> None:
    check = checked(tmp_path, "http://nowhere.invalid:8090")["control_plane"]

    assert check.ok is False
    assert "nowhere.invalid" in str(check.detail) and "0x" not in str(check.detail)


@pytest.mark.parametrize(("body", "status"), [(b"<html>router</html>", 200), (b'{"detail": "no"}', 404), (b"[]", 200)])
def test_somebody_else_at_that_address_is_not_taken_for_it(tmp_path: Path, body: bytes, status: int) -> None:
    with server(body, status=status) as url:
        check = checked(tmp_path, url)["control_plane"]

    assert (check.ok, f"(HTTP {status}), but it is not OpenFace" in str(check.detail)) == (False, True)


def test_a_certificate_that_is_not_trusted_names_the_setting(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with server(tls=certificate) as url:
        bad = checked(tmp_path, url)["control_plane"]
        good = checked(tmp_path, url, verify_tls=certificate[0])["control_plane"]

    assert (bad.ok, "OPENFACE_CA_FILE" in str(bad.remedy)) == (False, True)
    assert "self-signed" in str(bad.detail).replace(" ", "-")
    assert good.ok is True


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_certificate_that_is_not_checked_is_said_so(tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    with server(tls=certificate) as url:
        check = checked(tmp_path, url, verify_tls=False)["control_plane"]

    assert (check.ok, "certificate is not checked" in str(check.detail)) == (True, True)


def test_a_clock_that_is_wrong_is_told_and_no_reason_to_stop(tmp_path: Path) -> None:
    with server(date="Fri, 30 Nov 2018 01:00:00 GMT") as url:
        checks = checked(tmp_path, url)

    assert checks["control_plane"].ok is True
    assert (checks["clock"].ok, "ahead of the control plane's" in str(checks["clock"].detail)) == (None, True)


@pytest.mark.parametrize(("seen", "ok"), [("ok", True), ("timeout", False), ("proposed", False), (None, None)])
def test_what_the_control_plane_said_of_our_gateway_is_told_while_a_worker_runs(
    tmp_path: Path, plane: ControlPlane, seen: str | None, ok: bool | None
) -> None:
    SelfReportFile(tmp_path).write(
        SelfReport(
            pid=1, version="0", answers=True, problem=None, standing="open", gateway_url="http://10.0.0.2:8787",
            gateway=seen, paused=None, no_gpu_jobs=None,
        )
    )  # fmt: skip

    assert "gateway" not in checked(tmp_path, plane.url), "what a worker wrote that is gone says nothing of now"
    with DataDirLock(tmp_path, RUN):
        assert checked(tmp_path, plane.url)["gateway"].ok is ok


def test_an_address_that_is_refused_beside_the_one_that_serves_is_told_with_what_helps(
    tmp_path: Path, plane: ControlPlane
) -> None:
    why = "http://127.0.0.1:8787 is refused: 127.0.0.1 is this machine as seen from itself."
    SelfReportFile(tmp_path).write(
        SelfReport(
            pid=1, version="0", answers=True, problem=None, standing="open", gateway_url="http://127.0.0.1:8787",
            gateway="ok", gateway_detail=why, paused=None, no_gpu_jobs=None,
        )
    )  # fmt: skip

    with DataDirLock(tmp_path, RUN):
        check = checked(tmp_path, plane.url)["gateway"]

    assert (check.ok, check.detail) == (None, why)
    assert "WORKER_PUBLIC_URL" in str(check.remedy)


def test_the_control_planes_own_word_counts_more_than_a_proxys_clock(tmp_path: Path) -> None:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    with server(date="Fri, 30 Nov 2018 01:00:00 GMT", time_told=now) as url:
        right = checked(tmp_path, url)
    with server(time_told="2018-11-30T01:00:00Z") as url:
        wrong = checked(tmp_path, url)
    with server(time_told="half past nine") as url:
        unreadable = checked(tmp_path, url)

    assert [checks["clock"].ok for checks in (right, wrong, unreadable)] == [True, None, True]
