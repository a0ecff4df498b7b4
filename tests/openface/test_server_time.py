"""The control plane tells its time itself, so that a worker's doctor can compare clocks whatever stands in front."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from openface.server_time import ServerTime
from tests.chaos.installation import web_process

ROOT = Path(__file__).parents[2]
NOON = 1_764_504_000.0  # 2025-11-30T12:00:00Z, a Sunday


def answer(path: str, headers: list[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """The headers of an application's answer, as they leave."""
    sent: list[dict[str, Any]] = []

    async def application(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 401, "headers": headers})
        await send({"type": "http.response.body", "body": b"{}"})

    async def send(message: Any) -> None:
        sent.append(message)

    told = ServerTime(application, now=lambda: NOON)
    asyncio.run(told({"type": "http", "path": path}, None, send))  # type: ignore[arg-type]
    assert sent[1] == {"type": "http.response.body", "body": b"{}"}
    return dict(sent[0]["headers"])


def test_a_worker_is_told_the_time_twice_since_a_proxy_may_replace_one() -> None:
    assert answer("/api/v1/workers/register", [(b"content-type", b"application/json")]) == {
        b"content-type": b"application/json",
        b"date": b"Sun, 30 Nov 2025 12:00:00 GMT",
        b"x-openface-time": b"2025-11-30T12:00:00Z",
    }


def test_a_page_has_the_usual_header_alone_and_keeps_its_own() -> None:
    assert answer("/spaces/", []) == {b"date": b"Sun, 30 Nov 2025 12:00:00 GMT"}
    assert answer("/spaces/", [(b"Date", b"mine")]) == {b"Date": b"mine"}


@pytest.mark.django_db(transaction=True)
def test_a_doctor_sees_a_wrong_clock_with_nothing_in_front_of_the_control_plane(
    database_url: str, tmp_path: Path
) -> None:
    with web_process(database_url, tmp_path / "web.log") as port:
        right, slow = (clock_of(f"http://127.0.0.1:{port}", tmp_path, off) for off in (0, -1200))

    assert (right["ok"], right["detail"]) == (True, "within a minute of the control plane's")
    assert (slow["ok"], slow["detail"].startswith("20 minutes behind the control plane's")) == (None, True)
    assert "timedatectl set-ntp true" in slow["remedy"]


def clock_of(url: str, data_dir: Path, off: int) -> dict[str, Any]:
    """What the doctor says of the clock on a machine whose clock is so many seconds off."""
    command = [sys.executable, "-m", "tests.e2e.wrong_clock", str(off), "doctor", "--json"]
    settings = {"OPENFACE_URL": url, "WORKER_DATA_DIR": str(data_dir), "OPENFACE_EXECUTOR": "process"}
    environment = {"PATH": os.environ["PATH"], "HOME": str(data_dir), **settings}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    clock: dict[str, Any] = checks["clock"]
    return clock
