"""The data plane as a program: one place for its options, and a socket that outlives it."""

from __future__ import annotations

import os
import resource
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from openface import data_server

PROJECT = Path(__file__).resolve().parents[2]
COMMAND = "openface.data_server"


@pytest.mark.parametrize(
    "file", ["docs/install.md", "docs/data-plane.md", "compose/control-plane.yml", "openface/stack.py"]
)
def test_it_is_started_without_options_of_the_server(file: str):
    text = (PROJECT / file).read_text(encoding="utf-8")

    assert COMMAND in text
    assert "--ws-max-size" not in text
    assert "--no-server-header" not in text


def test_nobody_else_speaks_for_the_app_or_the_browser():
    config = data_server.config()

    assert (config.server_header, config.date_header, config.proxy_headers, config.access_log) == (False,) * 4
    assert config.timeout_graceful_shutdown == 5


def test_it_serves_on_a_socket_that_is_handed_on():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        client = socket.create_connection(("127.0.0.1", port), timeout=60)  # before anybody is there to accept
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        with subprocess.Popen(
            [sys.executable, "-m", COMMAND, "--fd", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            cwd=PROJECT,
            env={**os.environ, "DATABASE_URL": "postgres://nobody@127.0.0.1:9/none"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        ) as server:
            answer = client.recv(4096)
            server.terminate()
    client.close()

    assert answer.startswith(b"HTTP/1.1 200 ")


def test_it_takes_all_the_files_it_may_have():
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname(), timeout=60) as client,
        subprocess.Popen(
            ["prlimit", "--nofile=256:600", sys.executable, "-m", COMMAND, "--fd", str(listener.fileno())],
            pass_fds=[listener.fileno()],
            cwd=PROJECT,
            env={**os.environ, "DATABASE_URL": "postgres://nobody@127.0.0.1:9/none"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as server,
    ):
        client.sendall(b"GET /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        client.recv(4096)
        limits = resource.prlimit(server.pid, resource.RLIMIT_NOFILE)
        server.terminate()
        _, said = server.communicate()

    assert limits == (600, 600)
    assert "OPENFACE_RUN_MAX_PER_SPACE needs" in said  # which is too few for the settings


def test_systemd_hands_on_the_third_descriptor_to_the_process_it_names(monkeypatch: pytest.MonkeyPatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setattr(data_server, "FIRST_FD_OF_SYSTEMD", os.dup(listener.fileno()))
        given = data_server.inherited({"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "1"})

        assert given is not None
        assert given.getsockname() == listener.getsockname()
        given.close()
    assert data_server.inherited({"LISTEN_PID": "1", "LISTEN_FDS": "1"}) is None
    assert data_server.inherited({}) is None


def test_a_wrong_option_is_told(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        data_server.main(["--port", "many"])

    assert ended.value.code == 2
    assert "--port" in capsys.readouterr().err
