"""The sample Spaces do what their READMEs say, started the way a worker starts them: a port in the environment."""

from __future__ import annotations

import asyncio
import hashlib
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import websockets

from spaces import front_matter

SPACES = Path(__file__).resolve().parents[2] / "fixtures" / "spaces"
OURS = ("gpu-diagnostic", "slow-build", "static-page", "web-echo")
FOREIGN = ("gradio-hello", "node-hello", "streamlit-hello")

Ask = Callable[..., tuple[int, dict[str, str], bytes]]


class App:
    """A sample Space as a process."""

    def __init__(self, name: str, port: int) -> None:
        self.name = name
        self.port = port

    def ask(
        self, path: str, method: str = "GET", body: Any = None, **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as client:
            client.request(method, path, body=body, headers=headers, encode_chunked=not isinstance(body, bytes | None))
            answer = client.getresponse()
            return answer.status, {key.lower(): value for key, value in answer.getheaders()}, answer.read()

    def json(self, path: str, **wishes: Any) -> Any:
        status, _, body = self.ask(path, **wishes)
        assert status == 200
        return json.loads(body)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., App]]:
    """Start a sample's app_file on a free port, with nothing but the given variables, and wait until it answers."""
    processes: list[subprocess.Popen[bytes]] = []

    def run(name: str, **variables: str) -> App:
        with closing(socket.create_server(("127.0.0.1", 0))) as listener:
            port = listener.getsockname()[1]
        app_file = front_matter.parse((SPACES / name / "README.md").read_bytes()).app_file
        assert app_file is not None
        # -B: a run leaves nothing in the fixture's directory.
        with (tmp_path / f"{name}.err").open("wb") as errors:
            process = subprocess.Popen(
                [sys.executable, "-B", app_file],
                cwd=SPACES / name,
                env={"PATH": os.defpath, "HOST": "127.0.0.1", "PORT": str(port), **variables},
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        processes.append(process)
        deadline = time.monotonic() + 30
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                return App(name, port)
            except OSError:
                assert process.poll() is None, (tmp_path / f"{name}.err").read_text()
                assert time.monotonic() < deadline, "it never listened"
                time.sleep(0.02)

    yield run
    for process in processes:
        process.terminate()
        process.wait(timeout=10)


# --- all of them -----------------------------------------------------------------------------------------------------


def test_these_are_all_the_samples() -> None:
    assert {path.name for path in SPACES.iterdir() if path.is_dir()} >= {*OURS, *FOREIGN}


@pytest.mark.parametrize("name", [*OURS, *FOREIGN])
def test_the_readme_is_understood_without_a_warning_and_a_dockerfile_is_there(name: str) -> None:
    found = front_matter.parse((SPACES / name / "README.md").read_bytes())

    assert found.warnings == ()
    assert found.title and found.emoji and found.color_from and found.color_to and found.short_description
    assert found.sdk == "docker"
    assert (SPACES / name / "Dockerfile").is_file()


@pytest.mark.parametrize("name", OURS)
def test_our_own_can_be_built_on_a_base_image_of_the_operator_s_choice(name: str) -> None:
    lines = (SPACES / name / "Dockerfile").read_text().splitlines()

    assert lines[:2] == ["ARG BASE_IMAGE=python:3.11-slim", "FROM ${BASE_IMAGE}"]
    assert (SPACES / name / str(front_matter.parse((SPACES / name / "README.md").read_bytes()).app_file)).is_file()
    assert not (SPACES / name / "requirements.txt").exists()


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found += [value or "" for name, value in attrs if name in ("href", "src", "action", "srcset", "poster")]


@pytest.mark.parametrize("name", OURS)
def test_our_pages_link_relatively_and_to_nowhere_else(start: Callable[..., App], name: str) -> None:
    status, headers, body = start(name).ask("/")

    links = Links()
    links.feed(body.decode())
    assert (status, headers["content-type"].split(";")[0]) == (200, "text/html")
    assert [link for link in links.found if link.startswith("/") or (":" in link and link != "data:,")] == []
    assert b"width=device-width" in body and b"<title>" in body


@pytest.mark.parametrize("name", OURS)
def test_our_scripts_and_styles_ask_nobody_else(name: str) -> None:
    for path in SPACES.joinpath(name).rglob("*"):
        if path.suffix in (".html", ".js", ".css"):
            addresses = re.findall(r"https?://[^\s\"'<>)]+", path.read_text(encoding="utf-8"))
            assert [address for address in addresses if address != "http://www.w3.org/2000/svg"] == []


@pytest.mark.parametrize("name", OURS)
def test_our_apps_answer_head_and_404_as_one_should(start: Callable[..., App], name: str) -> None:
    app = start(name)

    _, got, body = app.ask("/")
    status, head, nothing = app.ask("/", method="HEAD")

    assert (status, nothing, head["content-length"]) == (200, b"", got["content-length"])
    assert int(head["content-length"]) == len(body)
    assert app.ask("/no/such/path")[0] == 404


# --- gpu-diagnostic --------------------------------------------------------------------------------------------------


def test_it_names_the_runtime_and_says_when_there_is_no_gpu(start: Callable[..., App]) -> None:
    app = start("gpu-diagnostic", NVIDIA_VISIBLE_DEVICES="void", CUDA_VISIBLE_DEVICES="-1")

    facts = app.json("/api/gpu")

    assert facts["runtime"] == "openface-remote-gpu"
    assert (facts["gpus"], facts["gpu_count"], facts["source"]) == ([], 0, "none")
    page = app.ask("/")[2].decode()
    assert '"runtime": "openface-remote-gpu"' in page
    assert "No GPU" in page


def test_it_shows_simulated_gpus_as_simulated(start: Callable[..., App]) -> None:
    gpu = {"uuid": "GPU-1", "index": 3, "model": "<b>RTX</b>", "total_vram_mib": 24564, "free_vram_mib": 20000}

    app = start("gpu-diagnostic", OPENFACE_SIMULATED_GPUS=json.dumps([gpu]), NVIDIA_VISIBLE_DEVICES="GPU-1")

    facts = app.json("/api/gpu")
    assert (facts["source"], facts["gpus"]) == ("simulated", [{**gpu, "simulated": True}])
    page = app.ask("/")[2].decode()
    assert "1 GPU" in page and "GPU-1" in page and "simulated" in page
    assert "<b>RTX" not in page


def test_without_a_driver_it_says_that_it_only_read_the_environment(start: Callable[..., App]) -> None:
    facts = start("gpu-diagnostic", NVIDIA_VISIBLE_DEVICES="GPU-1,GPU-2").json("/api/gpu")

    assert facts["source"] == "environment"
    assert [gpu["uuid"] for gpu in facts["gpus"]] == ["GPU-1", "GPU-2"]


def test_it_asks_nvidia_smi_and_bears_what_that_does_not_know(start: Callable[..., App], tmp_path: Path) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text(
        "#!/bin/sh\n"
        'echo "0, GPU-a, NVIDIA GeForce RTX 4090, 24564, 20000, 41, 550.54.14"\n'
        'echo "1, GPU-b, NVIDIA A100, [N/A], [Not Supported], [Unknown Error], 550.54.14"\n'
        'echo "Unable to determine the device handle"\n'
    )
    program.chmod(0o755)

    facts = start("gpu-diagnostic", PATH=f"{tmp_path}:{os.defpath}").json("/api/gpu")

    assert (facts["source"], facts["driver_version"]) == ("nvidia-smi", "550.54.14")
    assert [(gpu["uuid"], gpu["free_vram_mib"]) for gpu in facts["gpus"]] == [("GPU-a", 20000), ("GPU-b", None)]


# --- slow-build ------------------------------------------------------------------------------------------------------


def test_its_build_says_one_line_for_each_second_and_leaves_a_record(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, SPACES / "slow-build" / "build.py", "2"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )

    assert done.stdout.splitlines() == [
        "step 1/2 [##########..........] 50 %",
        "step 2/2 [####################] 100 %",
    ]
    assert json.loads((tmp_path / "built.json").read_text())["steps"] == 2
    assert "ARG BUILD_SECONDS=20" in (SPACES / "slow-build" / "Dockerfile").read_text()


def test_where_nothing_was_built_it_says_so(start: Callable[..., App]) -> None:
    app = start("slow-build")

    assert app.json("/api/build") == {"built": None}
    assert "nothing had to be built" in app.ask("/")[2].decode()


# --- static-page -----------------------------------------------------------------------------------------------------


def test_its_files_have_the_types_that_browsers_insist_on(start: Callable[..., App]) -> None:
    app = start("static-page")

    types = {path: app.ask(f"/{path}")[1]["content-type"] for path in ("asanoha.js", "asanoha.css", "leaf.svg")}

    assert types == {"asanoha.js": "text/javascript", "asanoha.css": "text/css", "leaf.svg": "image/svg+xml"}
    assert app.ask("/../serve.py")[0] == 404


# --- web-echo --------------------------------------------------------------------------------------------------------


def test_it_tells_the_request_it_got(start: Callable[..., App]) -> None:
    app = start("web-echo")
    body = os.urandom(300_000)

    plain = app.json("/echo?a=1&a=2", method="PUT", body=body, **{"X-Thing": "yes"})
    chunked = app.json(
        "/echo", method="POST", body=iter([body[:1000], body[1000:]]), **{"Transfer-Encoding": "chunked"}
    )

    assert (plain["method"], plain["path"]) == ("PUT", "/echo?a=1&a=2")
    assert ["X-Thing", "yes"] in plain["headers"]
    digest = {"bytes": 300_000, "sha256": hashlib.sha256(body).hexdigest()}
    assert plain["body"] == chunked["body"] == digest


def test_its_events_arrive_one_by_one(start: Callable[..., App]) -> None:
    app = start("web-echo")

    with closing(http.client.HTTPConnection("127.0.0.1", app.port, timeout=30)) as client:
        client.request("GET", "/events?interval=3600")  # the next one would come in an hour
        answer = client.getresponse()
        first = b"".join(answer.readline() for _ in range(4)).decode()

    assert answer.headers["content-type"] == "text/event-stream"
    assert first.startswith('id: 1\nevent: tick\ndata: {"number": 1,')


def test_its_event_stream_ends_when_a_count_is_asked_for(start: Callable[..., App]) -> None:
    _, _, body = start("web-echo").ask("/events?count=3&interval=0")

    assert re.findall(rb"id: (\d)\n", body) == [b"1", b"2", b"3"]


def test_its_websocket_echoes_text_and_bytes_of_any_size_and_closes_as_asked(start: Callable[..., App]) -> None:
    app = start("web-echo")
    large = os.urandom(17 * 1024 * 1024)

    async def talk() -> dict[str, Any]:
        address = f"ws://127.0.0.1:{app.port}/ws"
        said: dict[str, Any] = {}
        async with websockets.connect(address, subprotocols=["echo.v2", "echo.v1"], max_size=None) as socket:  # type: ignore[list-item]
            said["protocol"] = socket.subprotocol
            for message in ("hello", "", "日本語 🐙", b"", b"\x00\xff", "x" * 70_000, large):
                await socket.send(message)
                assert await socket.recv() == message
            await socket.send(["in ", "three ", "frames"])
            said["joined"] = await socket.recv()
            await (await socket.ping())
            await socket.send("close 4001 because I said so")
            await socket.wait_closed()
            said["close"] = (socket.close_code, socket.close_reason)
        async with websockets.connect(address, subprotocols=["other"]) as socket:  # type: ignore[list-item]
            said["unknown protocol"] = socket.subprotocol
        return said

    assert asyncio.run(talk()) == {
        "protocol": "echo.v1",
        "joined": "in three frames",
        "close": (4001, "because I said so"),
        "unknown protocol": None,
    }


def test_its_websocket_address_says_what_it_is_to_a_plain_request(start: Callable[..., App]) -> None:
    assert start("web-echo").ask("/ws")[0] == 426
