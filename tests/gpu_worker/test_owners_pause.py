"""The owner of a machine pauses its worker from that machine: at once, over restarts, and with an end if wished."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from gpu_worker.__main__ import main
from gpu_worker.crew import HANDED_BACK
from gpu_worker.errors import ConfigError
from gpu_worker.pause import Pause, PauseFile, PauseWatch, duration, in_force, time_of_day
from gpu_worker.process_identity import ProcessIdentity
from tests.gpu_worker.commands_of_owner import Command
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def queue_app(plane: ControlPlane, name: str = "hello") -> str:
    revision = make_repository(plane.git_root, name, {"app.py": WEB_APP})
    return plane.queue_job(name, revision, app_file="app.py")


def serving(plane: ControlPlane) -> Lease:
    job = queue_app(plane)
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    return lease


def told(plane: ControlPlane) -> tuple[bool | None, str | None]:
    """What the newest heartbeat says: whether jobs are accepted, and why not."""
    newest = plane.beats[-1] if plane.beats else {"accepting": None, "paused_reason": None}
    return newest["accepting"], newest["paused_reason"]


def test_a_pause_takes_no_more_jobs_and_lets_running_apps_go_on(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    lease = serving(plane)

    answer = command(worker, "pause", "--reason", "rendering a film")

    assert (answer["paused"], answer["running"], answer["jobs"]) == (True, True, 1)
    eventually(lambda: told(plane) == (False, "rendering a film"), what="the pause")
    second = queue_app(plane, "second")
    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="some heartbeats")
    assert plane.state(second) == "queued"
    assert ask(worker, lease.id)[0] == 200

    command(worker, "resume")

    eventually(lambda: plane.state(second) == "running", what="the second job")


def test_a_pause_is_heard_before_the_next_heartbeat_is_due(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    plane.intervals |= {"heartbeat_seconds": 600, "poll_seconds": 600, "stale_seconds": 2400}
    worker = make_worker().start()
    eventually(lambda: plane.beats, what="the first heartbeat")

    command(worker, "pause")
    eventually(lambda: told(plane) == (False, "no reason given"), what="the pause")
    command(worker, "resume")

    eventually(lambda: told(plane) == (True, None), what="the end of the pause")


def test_a_pause_survives_a_restart_of_the_worker(plane: ControlPlane, make_worker: Make, command: Command) -> None:
    worker = make_worker().start()
    command(worker, "pause")
    worker.terminate()
    job = queue_app(plane)

    worker.start()

    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="some heartbeats")
    assert plane.state(job) == "queued"
    assert told(plane) == (False, "no reason given")


def test_now_stops_running_apps_and_hands_them_back(plane: ControlPlane, make_worker: Make, command: Command) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = ask(worker, lease.id)[1]["pid"]

    command(worker, "pause", "--now", "--reason", "my own business")

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds() == ["building", "starting", "running", "declined"]
    assert lease.events[-1]["reason"] == "paused"
    assert ProcessIdentity.of(pid) is None
    assert "my own business" not in json.dumps(lease.events) + lease.logs["system"], "the Space's people read these"


def test_now_is_carried_out_by_the_next_process_if_this_one_dies(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    worker.kill()
    assert command(worker, "pause", "--now")["running"] is False

    worker.start()

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.events[-1]["reason"] == "paused"


def test_now_frees_the_machine_before_the_control_plane_answers_and_is_told_when_it_does(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = ask(worker, lease.id)[1]["pid"]
    worker.kill()
    command(worker, "pause", "--now")
    plane.outage.set()

    def start_and_look() -> None:
        plane.requests = 0
        worker.spawn()
        eventually(lambda: ProcessIdentity.of(pid) is None, what="the end of the app")
        eventually(lambda: plane.requests > 1, what="some tries to register")

    start_and_look()
    worker.kill()
    start_and_look()  # finds what the first process had to leave untold
    plane.outage.clear()

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds() == ["building", "starting", "running", "declined"]
    assert lease.events[-1]["reason"] == "paused"
    assert plane.state(lease.claim["id"]) == "queued"
    eventually(lambda: worker.journal() == [], what="an empty journal")


def test_a_hand_back_cut_by_a_power_cut_is_still_one_when_the_pause_is_over(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    deaf = "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + WEB_APP
    job = plane.queue_job("deaf", make_repository(plane.git_root, "deaf", {"app.py": deaf}), app_file="app.py")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    pid = ask(worker, lease.id)[1]["pid"]
    command(worker, "pause", "--now")
    eventually(lambda: worker.journal()[0]["phase"] == "stopping", what="the stop")
    worker.kill()
    os.kill(pid, signal.SIGKILL)
    command(worker, "resume")

    worker.start()

    eventually(lambda: lease.released, what="the end")
    assert lease.kinds() == ["building", "starting", "running", "declined"]
    assert (lease.events[-1]["reason"], lease.events[-1]["detail"]) == ("paused", HANDED_BACK)


def test_a_pause_ends_by_itself(plane: ControlPlane, make_worker: Make, command: Command) -> None:
    worker = make_worker().start()

    command(worker, "pause", "--for", "2s")

    eventually(lambda: told(plane)[0] is False, what="the pause")
    eventually(lambda: told(plane)[0] is True, what="its end")
    assert command(worker, "status")["paused"] is False


def test_the_status_tells_of_a_pause_and_of_the_control_plane(
    plane: ControlPlane, make_worker: Make, command: Command
) -> None:
    worker = make_worker().start()
    command(worker, "pause", "--reason", "a game", "--for", "3h")

    status = eventually(
        lambda: (now := command(worker, "status")) and now["takes_no_jobs_because"] and now, what="the reason"
    )

    assert status["takes_no_jobs_because"] == f"a game, until {status['paused_until']}"
    assert (status["running"], status["answers"], status["standing"], status["gateway"]) == (True, True, "open", "ok")
    assert status["paused_until"] is not None
    worker.terminate()
    status = command(worker, "status")
    assert (status["running"], status["paused"], status["answers"]) == (False, True, None)


@pytest.mark.parametrize(
    "words", [("--for", "2 hours"), ("--until", "later"), ("--for", "1h", "--until", "18:00"), ("--reason", "x" * 201)]
)
def test_a_pause_that_cannot_be_meant_is_refused(
    plane: ControlPlane, make_worker: Make, command: Command, words: tuple[str]
) -> None:
    worker = make_worker()
    command(worker, "enroll")

    assert command(worker, "pause", *words, code=2)["code"] == "cannot_work"

    assert not (worker.data_dir / "pause.json").exists()


@pytest.mark.parametrize("words", ["pause", "resume"])
@pytest.mark.parametrize("there", [True, False])
def test_where_no_worker_is_none_is_paused_and_nothing_is_left_behind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], words: str, there: bool
) -> None:
    directory = tmp_path / "data"
    if there:
        directory.mkdir()

    code = main([words, "--data-dir", str(directory)])

    assert code == 2
    assert f"There is no worker in {directory}." in capsys.readouterr().err
    assert list(tmp_path.rglob("*")) == ([directory] if there else [])


def test_what_root_writes_is_readable_for_the_services_account(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root to be somebody else")
    os.chown(tmp_path, 10001, 10001)

    PauseFile(tmp_path).write(Pause(since=1.0))

    facts = (tmp_path / "pause.json").stat()
    assert (facts.st_uid, facts.st_gid) == (10001, 10001)


@pytest.mark.parametrize("written", ['{"since": 1', "[" * 100_000], ids=["half", "without end"])
def test_a_damaged_pause_is_a_pause(tmp_path: Path, written: str) -> None:
    (tmp_path / "pause.json").write_text(written)
    watch = PauseWatch(PauseFile(tmp_path))

    assert watch.look(time.time())
    assert "resume removes it" in str(watch.reason())
    PauseFile(tmp_path).remove()
    assert watch.look(time.time())
    assert watch.reason() is None


@pytest.mark.parametrize("until", ["99999999999999", "1e400", "NaN", "-1e18"])
def test_a_pause_until_a_time_that_cannot_be_shown_is_a_damaged_one(tmp_path: Path, until: str) -> None:
    (tmp_path / "pause.json").write_text(f'{{"since": 1, "until": {until}, "reason": "x", "stop_apps": true}}')

    read = PauseFile(tmp_path).read()

    assert read is not None
    assert (read.until, read.stop_apps) == (None, False)
    assert "resume removes it" in read.sentence()


def test_a_pause_is_over_at_its_time(tmp_path: Path) -> None:
    file = PauseFile(tmp_path)
    file.write(Pause(since=100.0, until=200.0))
    watch = PauseWatch(file)

    assert watch.look(199.0)
    assert not watch.look(199.9)
    assert watch.look(200.0)
    assert (watch.current, in_force(file.read(), 200.0)) == (None, None)


@pytest.mark.parametrize(
    ("text", "span"),
    [("30m", timedelta(minutes=30)), ("2h", timedelta(hours=2)), ("1d12h", timedelta(days=1, hours=12))],
)
def test_durations_are_written_as_people_say_them(text: str, span: timedelta) -> None:
    assert duration(text) == span


@pytest.mark.parametrize("text", ["", "0m", "h", "-1h", "2x", "99999h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="no duration"):
        duration(text)


def test_who_means_more_than_ten_years_means_until_resume() -> None:
    with pytest.raises(ConfigError, match="until resume"):
        duration("9999d")


def test_a_time_of_day_is_the_next_one() -> None:
    local = NOW.astimezone()
    later, earlier = local + timedelta(hours=1), local - timedelta(hours=1)

    assert time_of_day(f"{later:%H:%M}", now=local) == later
    assert time_of_day(f"{earlier:%H:%M}", now=local) == earlier + timedelta(days=1)
    assert time_of_day("2026-12-24T18:00+00:00", now=local) == datetime(2026, 12, 24, 18, tzinfo=UTC)


@pytest.mark.parametrize("text", ["25:00", "soon", "2026-11-30T11:00+00:00", "9999-12-31T23:59"])
def test_what_is_no_time_to_come_is_refused(text: str) -> None:
    with pytest.raises(ConfigError):
        time_of_day(text, now=NOW)
