"""The worker alone with an absent, silent, older or forgetful control plane, or back after its own absence."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.environment import LEASE_VARIABLE
from gpu_worker.process_identity import ProcessIdentity, all_pids, environment_of
from tests.gpu_worker.conftest import ask
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.slow_builds import waits_for
from tests.gpu_worker.test_who_is_this_worker import served, serving
from tests.gpu_worker.worker import WEB_APP, WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]


def pid_of(worker: WorkerProcess, lease: Lease) -> int:
    return int(ask(worker, lease.id)[1]["pid"])


def once_more(plane: ControlPlane, first: Lease) -> Lease:
    """Another job of the same commit, running."""
    job = plane.queue_job("hello", first.claim["revision"], app_file="app.py")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    return lease


def building(plane: ControlPlane, *, until: Path) -> Lease:
    """A job whose build has begun, and ends when the file *until* is there."""
    revision = make_repository(plane.git_root, "late", {"app.py": WEB_APP, **waits_for(until)})
    job = plane.queue_job("late", revision, app_file="app.py")
    lease = eventually(lambda: plane.lease_of(job), what="the claim")
    eventually(lambda: "Processing ./slow" in lease.logs["build"], what="the build")
    return lease


def killed_with_its_app(worker: WorkerProcess, lease: Lease) -> None:
    worker.kill()
    end_app(lease)


def apps_of(lease: Lease) -> list[int]:
    return [pid for pid in all_pids() if environment_of(pid).get(LEASE_VARIABLE) == lease.id]


def end_app(lease: Lease) -> None:
    for pid in apps_of(lease):
        os.kill(pid, signal.SIGKILL)
    eventually(lambda: not apps_of(lease), what="the end of the app")


# -- the control plane is away -----------------------------------------------------------------------------------


def test_calls_that_are_never_answered_hang_nothing_and_the_first_answer_ends_it(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = pid_of(worker, lease)

    plane.deaf.set()
    eventually(lambda: "did not answer in time" in worker.log(), what="the time limit of a heartbeat")
    assert pid_of(worker, lease) == pid
    beats = len(plane.beats)
    plane.deaf.clear()

    eventually(lambda: len(plane.beats) > beats + 1, what="heartbeats")
    once_more(plane, lease)  # a new job is claimed without a restart
    assert lease.moves() == ["building", "starting", "running"]
    assert worker.process is not None
    assert worker.process.poll() is None


@pytest.mark.parametrize("taken", [False, True], ids=["nobody took it", "somebody took it"])
def test_a_build_that_ends_during_an_outage_creates_nothing_before_the_lease_is_renewed(
    plane: ControlPlane, make_worker: Make, tmp_path: Path, taken: bool
) -> None:
    worker = make_worker().start()
    gate = tmp_path / "gate"
    lease = building(plane, until=gate)

    plane.outage.set()
    gate.touch()
    eventually(lambda: "lease not renewed yet" in worker.log(), what="the end of the build")
    assert apps_of(lease) == []
    lease.released = taken
    plane.outage.clear()

    if taken:
        eventually(lambda: lease.cleared, what="clearing")
        assert lease.kinds() == ["building"]
    else:
        eventually(lambda: lease.state == "running", what="running")
        assert lease.moves() == ["building", "starting", "running"]


@pytest.mark.parametrize("killed", [False, True], ids=["the worker stays", "the worker is killed too"])
def test_a_batch_job_that_ends_during_an_outage_is_told_whole_afterwards(
    plane: ControlPlane, make_worker: Make, killed: bool
) -> None:
    worker = make_worker().start()
    work = "import os, time\nwhile not os.path.exists('../go'): time.sleep(0.05)\n"
    told = "for n in range(500): print('line', n, flush=True)\nraise SystemExit(3)\n"
    revision = make_repository(plane.git_root, "sum", {"app.py": work + told})
    job = plane.queue_job("sum", revision, app_file="app.py", mode="batch")
    eventually(lambda: plane.state(job) == "running", what="running")
    lease = plane.lease_of(job)
    assert lease is not None

    plane.outage.set()
    (worker.data_dir / "runs" / lease.id / "go").touch()
    eventually(lambda: worker.journal()[0]["phase"] == "exited", what="the end of the app")
    if killed:
        worker.kill()
        worker.spawn()
    plane.outage.clear()

    eventually(lambda: lease.state == "failed", what="the report")
    assert lease.events[-1]["kind"] == "exited"
    assert lease.events[-1]["code"] == 3
    assert lease.logs["run"].splitlines() == [f"line {n}" for n in range(500)]
    eventually(lambda: lease.cleared, what="clearing")


def test_a_job_with_a_limit_for_the_silence_is_stopped_by_its_worker_and_says_so(
    plane: ControlPlane, make_worker: Make
) -> None:
    make_worker().start()
    lease = serving(plane, limits={"stop_after_disconnect_s": 1})

    plane.outage.set()
    eventually(lambda: not apps_of(lease), what="the end of the app")
    plane.outage.clear()

    eventually(lambda: lease.state == "failed", what="the report")
    assert lease.events[-1]["reason"] == "disconnected"


def test_a_limit_for_the_silence_counts_for_an_adopted_app_before_the_worker_has_registered(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane, limits={"stop_after_disconnect_s": 1})
    worker.kill()
    plane.outage.set()

    worker.spawn()

    eventually(lambda: not apps_of(lease), what="the end of the app")
    plane.outage.clear()
    eventually(lambda: lease.state == "failed", what="the report")
    assert lease.events[-1]["reason"] == "disconnected"


# -- the worker was away -----------------------------------------------------------------------------------------


def test_an_app_that_ended_while_the_worker_was_away_is_never_listed_as_running(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    killed_with_its_app(worker, lease)

    worker.start()

    assert [hold["state"] for hold in plane.registers[-1]["holds"]] == ["exited"]
    eventually(lambda: lease.state == "failed", what="the report")


def test_an_end_that_was_seen_and_not_yet_told_when_the_worker_died_is_told(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    killed_with_its_app(worker, lease)
    worker.rewrite_journal(phase="exited")

    worker.start()

    eventually(lambda: lease.state == "failed", what="the report")
    assert lease.events[-1]["kind"] == "exited"


def test_what_crashed_and_was_stopped_while_the_worker_was_away_is_cleared_away(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    killed_with_its_app(worker, lease)
    lease.released, lease.state = True, "completed"

    worker.start()

    eventually(lambda: lease.cleared, what="clearing")
    assert worker.journal() == []
    assert not (worker.data_dir / "runs" / lease.id).exists()


def test_after_a_restart_what_runs_counts_before_the_first_claim(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker(MAX_CPU_JOBS="2").start()
    first = serving(plane)
    second = once_more(plane, first)
    worker.kill()
    revision = first.claim["revision"]
    third = plane.queue_job("hello", revision, app_file="app.py")

    worker.start()
    beats = len(plane.beats)
    eventually(lambda: len(plane.beats) > beats + 3, what="some heartbeats")

    assert plane.state(third) == "queued"
    plane.stop_job(second.claim["id"])
    eventually(lambda: plane.state(third) == "running", what="the third job, in the freed place")
    assert first.state == "running"


def test_a_worker_that_was_revoked_while_it_was_away_stops_its_apps_when_it_hears(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    worker.kill()
    plane.revoked = True
    assert apps_of(lease) != []

    worker.spawn()

    assert worker.wait() == 78
    assert apps_of(lease) == []
    assert not (worker.data_dir / "credential.json").exists()


# -- the control plane has an older database ---------------------------------------------------------------------


def test_a_job_the_server_forgets_under_a_live_worker_is_kept_but_not_served(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid = pid_of(worker, lease)

    forgotten = plane.leases.pop(lease.id)
    served(worker, lease)  # it logs what it was asked, and that cannot be delivered
    eventually(lambda: not served(worker, lease), what="the closed way")
    assert ProcessIdentity.of(pid) is not None
    plane.leases[lease.id] = forgotten

    eventually(lambda: served(worker, lease), what="the way when it is known again")
    assert pid_of(worker, lease) == pid


def test_a_job_that_stays_unknown_is_removed_in_the_end_whether_it_is_adopted_or_not(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker(UNKNOWN_LEASE_SECONDS="2").start()
    lease = serving(plane)

    del plane.leases[lease.id]

    eventually(lambda: not apps_of(lease), what="the removal")
    eventually(lambda: plane.beats[-1]["holds"] == [], what="a heartbeat without it")
    assert "unknown lease removed" in worker.log()


def test_the_time_that_a_job_is_unknown_counts_on_over_a_restart(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    worker.kill()
    del plane.leases[lease.id]
    worker.rewrite_journal(unknown_seconds=24 * 3600 - 1.0)

    worker.start()

    eventually(lambda: not apps_of(lease), what="the removal")


def test_a_build_the_server_forgets_is_dropped_for_nothing_of_it_runs(
    plane: ControlPlane, make_worker: Make, tmp_path: Path
) -> None:
    worker = make_worker().start()
    lease = building(plane, until=tmp_path / "never")

    del plane.leases[lease.id]

    eventually(lambda: plane.beats[-1]["holds"] == [], what="a heartbeat without it")
    assert worker.journal() == []


def test_a_server_that_has_less_than_it_confirmed_is_told_where_the_job_is(
    plane: ControlPlane, make_worker: Make
) -> None:
    make_worker().start()
    lease = serving(plane)
    heard = len(plane.beats)
    eventually(lambda: len(plane.beats) >= heard + 2, what="two heartbeats: by now it knows what was confirmed")

    with plane.lock:
        lease.events.clear()
        lease.state = "leased"

    eventually(lambda: lease.events, what="a snapshot, although nothing happens to the app")
    assert (lease.events[0]["kind"], lease.events[0]["state"]) == ("snapshot", "running")


def test_a_new_token_from_a_heartbeat_opens_the_way_and_the_old_one_no_more(
    plane: ControlPlane, make_worker: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = make_worker().start()
    lease = serving(plane)
    pid, old = pid_of(worker, lease), plane.runtime_token(lease.id)

    monkeypatch.setattr("tests.gpu_worker.control_plane.LEASE_KEY", b"another lease key")

    eventually(lambda: served(worker, lease), what="the way with the new token")
    assert pid_of(worker, lease) == pid
    assert ask(worker, lease.id, token=old)[0] in (401, 403, 404)
