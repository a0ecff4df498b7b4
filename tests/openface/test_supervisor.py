"""The supervisor keeps real processes running, and leaves none behind."""

from __future__ import annotations

import io
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from openface.supervisor import Program, Supervisor, end_leftovers, start_of

PATIENCE_SECONDS = 60  # a hang guard


def eventually(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def python(name: str, script: str, **options: object) -> Program:
    return Program(name=name, command=[sys.executable, "-c", script], **options)  # type: ignore[arg-type]


SLEEPER = "import time\nprint('here', flush=True)\ntime.sleep(600)"
STUBBORN = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nprint('here', flush=True)\nsignal.pause()"


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def supervisor(tmp_path: Path, output: io.StringIO) -> Iterator[Supervisor]:
    supervisor = Supervisor(tmp_path / "running.json", output=output)
    yield supervisor
    supervisor.hurry()
    supervisor.stop_all()


def test_it_shows_what_a_program_says_and_who_says_it(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("web", "import time\nprint('listening')\nprint('half', end='')\ntime.sleep(600)"))

    eventually(lambda: "web        | listening\n" in output.getvalue())


def test_a_program_that_dies_is_started_again(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("web", SLEEPER))
    eventually(lambda: "here" in output.getvalue())
    first = supervisor.pid("web")
    assert first is not None

    os.kill(first, signal.SIGKILL)

    eventually(lambda: supervisor.pid("web") not in (None, first))
    assert "ended with signal SIGKILL; starts again in 0.5 s" in output.getvalue()


def test_each_failure_in_a_row_waits_longer(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("web", "raise SystemExit(3)"))

    eventually(lambda: "ended with status 3; starts again in 1 s" in output.getvalue())
    assert "ended with status 3; starts again in 0.5 s" in output.getvalue()


def test_a_final_status_is_not_tried_again(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("worker", "raise SystemExit(78)", final_statuses=frozenset({78})))

    eventually(lambda: supervisor.given_up("worker") == 78)
    assert supervisor.pid("worker") is None
    assert "starts again" not in output.getvalue()


def test_a_killed_program_stays_down_until_it_is_resumed(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("worker", SLEEPER))
    eventually(lambda: "here" in output.getvalue())

    assert supervisor.kill("worker") == -signal.SIGKILL
    assert supervisor.pid("worker") is None
    supervisor.resume("worker")

    eventually(lambda: output.getvalue().count("here") == 2)


def test_who_does_not_stop_in_time_is_killed(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("web", STUBBORN, stop_seconds=0.2))
    eventually(lambda: "here" in output.getvalue())

    assert supervisor.stop("web") == -signal.SIGKILL
    assert "did not stop within 0.2 s: killed" in output.getvalue()


def test_a_second_wish_to_stop_need_not_wait_for_the_first(supervisor: Supervisor, output: io.StringIO) -> None:
    supervisor.start(python("web", STUBBORN, stop_seconds=PATIENCE_SECONDS * 10))
    eventually(lambda: "here" in output.getvalue())
    stopping = threading.Thread(target=supervisor.stop_all)
    stopping.start()

    supervisor.hurry()

    stopping.join(PATIENCE_SECONDS)
    assert not stopping.is_alive()


def test_they_stop_in_the_reverse_of_the_order_they_started(supervisor: Supervisor, output: io.StringIO) -> None:
    says_goodbye = (
        "import signal, sys\n"
        "def leave(*_):\n    print('goodbye', flush=True)\n    sys.exit(0)\n"
        "signal.signal(signal.SIGTERM, leave)\nprint('here', flush=True)\nsignal.pause()"
    )
    for name in ("first", "second"):
        supervisor.start(python(name, says_goodbye))
    eventually(lambda: output.getvalue().count("here") == 2)

    supervisor.stop_all()

    eventually(lambda: output.getvalue().count("goodbye") == 2)
    assert [line.split()[0] for line in output.getvalue().splitlines() if "goodbye" in line] == ["second", "first"]


def test_what_a_program_started_in_its_own_group_ends_with_it(supervisor: Supervisor, tmp_path: Path) -> None:
    note = tmp_path / "grandchild"
    supervisor.start(
        python(
            "web",
            "import pathlib, subprocess, sys, time\n"
            "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
            f"pathlib.Path({str(note)!r}).write_text(str(child.pid))\ntime.sleep(600)",
        )
    )
    eventually(lambda: note.exists() and note.read_text())
    grandchild = int(note.read_text())
    assert start_of(grandchild) is not None

    supervisor.stop("web")

    eventually(lambda: start_of(grandchild) is None)


def test_what_a_killed_supervisor_left_is_ended_by_the_next(tmp_path: Path) -> None:
    record = tmp_path / "running.json"
    left = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.DEVNULL, start_new_session=True)
    reaper = threading.Thread(target=left.wait)
    reaper.start()
    record.write_text(json.dumps([{"name": "web", "pid": left.pid, "started": start_of(left.pid)}]))
    output = io.StringIO()

    Supervisor(record, output=output)

    reaper.join(PATIENCE_SECONDS)
    assert left.returncode == -signal.SIGTERM
    assert "ended web, left behind by an earlier run" in output.getvalue()


def test_a_stranger_with_a_recorded_number_is_left_alone(tmp_path: Path) -> None:
    record = tmp_path / "running.json"
    stranger = subprocess.Popen([sys.executable, "-c", SLEEPER], stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        record.write_text(json.dumps([{"name": "web", "pid": stranger.pid, "started": "1@another-boot"}]))

        assert end_leftovers(record) == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.parametrize("content", ["", "not json", "{}", "[1]", '[{"name": "web"}]'])
def test_a_damaged_record_stops_nobody(tmp_path: Path, content: str) -> None:
    record = tmp_path / "running.json"
    record.write_text(content)

    assert end_leftovers(record) == []


ANSWERER = """
import os, socket, sys
listener = socket.socket(fileno=int(sys.argv[1]))
while True:
    client, _ = listener.accept()
    if client.recv(100) == b"die":
        os._exit(1)
    client.sendall(b"%d" % os.getpid())
    client.close()
"""


def ask(port: int, text: bytes = b"who") -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as client:
        client.sendall(text)
        return client.recv(100)


@pytest.fixture
def answering(supervisor: Supervisor) -> int:
    """The port of a program that answers with its process id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    command = [sys.executable, "-c", ANSWERER, "{fd}"]
    supervisor.start(Program(name="web", command=command, listens=("127.0.0.1", port)))
    return port


@pytest.mark.parametrize("how", ["crash", "restart"])
def test_who_connects_while_a_program_is_started_again_waits(supervisor: Supervisor, answering: int, how: str) -> None:
    first = ask(answering)

    if how == "crash":
        assert ask(answering, b"die") == b""
    else:
        supervisor.restart("web")
    second = ask(answering)  # at once: the program is not there yet

    assert second.isdigit()
    assert second != first


def test_a_program_that_was_stopped_refuses(supervisor: Supervisor, answering: int) -> None:
    assert ask(answering).isdigit()

    supervisor.stop("web")

    with pytest.raises(ConnectionRefusedError):
        ask(answering)
    supervisor.resume("web")
    assert ask(answering).isdigit()
