"""Enrollment, revocation and sessions: who a worker is, and when it has to go."""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.process_identity import ProcessIdentity
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, git, make_repository

Make = Callable[..., WorkerProcess]


SLOW_BUILD = {
    "app.py": WEB_APP,
    "requirements.txt": "--no-index\n./slow",
    "slow/pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "slow"\nbackend-path = ["."]\n',
    "slow/slow.py": "import time\ntime.sleep(300)\n",
}


def serving(plane: ControlPlane, **changes: object) -> Lease:
    revision = make_repository(plane.git_root, "hello", {"app.py": WEB_APP})
    job = plane.queue_job("hello", revision, app_file="app.py", **changes)
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    return lease


def test_the_first_run_enrolls_and_later_ones_do_not(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    assert worker.terminate() == 0
    plane.tokens.clear()

    worker.start()

    assert worker.terminate() == 0
    assert plane.session == 2


def test_the_credential_is_private(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()

    for file in worker.data_dir.rglob("*.json"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize("trouble", ["unknown", "used"])
def test_a_refused_token_is_a_wrong_setting(plane: ControlPlane, make_worker: Make, trouble: str) -> None:
    worker = make_worker()
    if trouble == "unknown":
        plane.tokens.clear()
    else:
        plane.tokens = {token: (name, "another nonce") for token, (name, _) in plane.tokens.items()}

    worker.spawn()

    assert worker.wait() == 2
    assert f"token_{trouble}" in worker.log()


def test_a_worker_without_a_token_says_what_it_needs(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker()
    Path(worker.environment["WORKER_ENROLLMENT_TOKEN_FILE"]).write_text("")

    worker.spawn()

    assert worker.wait() == 2
    assert "WORKER_ENROLLMENT_TOKEN_FILE" in worker.log()


def test_a_name_that_is_not_the_tokens_is_refused(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker(WORKER_NAME="gpu9")

    worker.spawn()

    assert worker.wait() == 2
    assert "'gpu9'" in worker.log()


def test_two_workers_do_not_share_a_data_directory(plane: ControlPlane, make_worker: Make) -> None:
    first = make_worker().start()
    second = make_worker(WORKER_DATA_DIR=str(first.data_dir))

    second.spawn()

    assert second.wait() == 2
    assert "Another worker is running" in second.log()


def test_a_revoked_worker_stops_its_apps_and_is_gone_for_good(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = ask(worker, lease.id)[1]["pid"]

    plane.revoked = True

    assert worker.wait() == 78
    assert ProcessIdentity.of(pid) is None
    assert not (worker.data_dir / "credential.json").exists()

    registers, tokens = len(plane.registers), dict(plane.tokens)
    worker.spawn()
    assert worker.wait() == 78
    assert (len(plane.registers), plane.tokens) == (registers, tokens)


def test_a_revoked_worker_comes_back_with_a_new_token(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    plane.revoked = True
    assert worker.wait() == 78

    Path(worker.environment["WORKER_ENROLLMENT_TOKEN_FILE"]).write_text(plane.issue_token())

    worker.start()
    assert worker.terminate() == 0


def test_an_unproven_revocation_changes_nothing(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    true_hash = plane.secret_hash

    plane.secret_hash = b"0" * 32  # every call is refused now, and no proof of ours can be right
    beats = len(plane.beats)
    eventually(lambda: "credential_invalid" in worker.log(), what="the refusal")

    assert ask(worker, lease.id)[0] == 200
    assert (worker.data_dir / "credential.json").exists()
    plane.secret_hash = true_hash
    eventually(lambda: len(plane.beats) > beats, what="the next heartbeat")
    assert lease.state == "running"


def test_an_older_session_leaves_without_touching_its_apps(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = ask(worker, lease.id)[1]["pid"]

    plane.session += 1

    assert worker.wait() == 78
    assert ProcessIdentity.of(pid) is not None
    assert (worker.data_dir / "credential.json").exists()


def test_a_restart_after_a_lost_claim_answer_starts_nothing_twice(plane: ControlPlane, make_worker: Make) -> None:
    plane.intervals["heartbeat_seconds"] = 3  # a lease that two heartbeats do not list is queued again, and rightly
    plane.lose_next_answers = 2
    make_worker().start()

    lease = serving(plane)

    assert len(plane.leases) == 1
    assert lease.moves() == ["building", "starting", "running"]


def test_an_outage_of_the_control_plane_costs_a_running_app_nothing(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = ask(worker, lease.id)[1]["pid"]

    plane.outage.set()
    eventually(lambda: "does not answer; running apps go on" in worker.log(), what="the outage")
    assert ask(worker, lease.id)[1]["pid"] == pid
    plane.outage.clear()

    eventually(lambda: "answers again" in worker.log(), what="the return")
    assert ask(worker, lease.id)[1]["pid"] == pid
    assert lease.moves() == ["building", "starting", "running"]


def test_a_lease_that_ended_during_the_build_starts_nothing(plane: ControlPlane, make_worker: Make) -> None:
    make_worker().start()
    revision = make_repository(plane.git_root, "late", SLOW_BUILD)
    job = plane.queue_job("late", revision, app_file="app.py")
    lease = eventually(lambda: plane.lease_of(job), what="the claim")
    eventually(lambda: "Processing ./slow" in lease.logs["build"], what="the build")

    lease.released = True

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.kinds() == ["building"]


def test_a_job_the_server_does_not_know_is_kept_but_not_served(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = ask(worker, lease.id)[1]["pid"]
    worker.kill()
    forgotten = plane.leases.pop(lease.id)

    worker.start()

    eventually(lambda: not served(worker, lease), what="the closed way")
    assert ProcessIdentity.of(pid) is not None
    plane.leases[lease.id] = forgotten
    eventually(lambda: served(worker, lease), what="the way when it is known again")


def served(worker: WorkerProcess, lease: Lease) -> bool:
    try:
        return ask(worker, lease.id)[0] == 200
    except OSError:
        return False  # cut while it was under way


def test_no_more_jobs_are_taken_than_there_is_room(plane: ControlPlane, make_worker: Make) -> None:
    make_worker(MAX_CPU_JOBS="1").start()
    first = serving(plane)
    revision = git("rev-parse", "HEAD", directory=plane.git_root / "work" / "hello").strip()
    second = plane.queue_job("hello", revision, app_file="app.py")
    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="some heartbeats")
    assert plane.state(second) == "queued"

    plane.stop_job(first.claim["id"])

    eventually(lambda: plane.state(second) == "running", what="the second job")


@pytest.mark.parametrize("standing", ["draining", "disabled"])
def test_a_worker_that_is_not_open_takes_nothing(plane: ControlPlane, make_worker: Make, standing: str) -> None:
    plane.standing = standing
    make_worker().start()
    revision = make_repository(plane.git_root, "hello", {"app.py": WEB_APP})
    job = plane.queue_job("hello", revision, app_file="app.py")
    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="some heartbeats")
    assert plane.state(job) == "queued"

    plane.standing = "open"

    eventually(lambda: plane.state(job) == "running", what="running")
