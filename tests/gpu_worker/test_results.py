"""A batch job's results reach the server before its end does, whatever happens to server or worker meanwhile."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from gpu_worker.agent import make_executor
from gpu_worker.config import load
from gpu_worker.journal import JobRecord
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.images import container_files
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

Make = Callable[..., WorkerProcess]
MIB = 1024 * 1024

# Regular files, one of them large; two names of one file; and what is no result.
WRITES = """
mkdir -p $R/plots/深い
printf 'score: 42' > $R/score.txt
printf '' > $R/empty
printf 'picture' > "$R/plots/深い/図 1.png"
dd if=/dev/zero of=$R/large.bin bs=65536 count=40 2>/dev/null
ln $R/score.txt $R/again.txt
ln -s /etc/passwd $R/link
mkfifo $R/fifo
"""
EXPECTED = {
    "score.txt": b"score: 42",
    "empty": b"",
    "plots/深い/図 1.png": b"picture",
    "large.bin": bytes(40 * 65536),
    "again.txt": b"score: 42",
}


@dataclass
class Kind:
    """One executor and how a shell script runs under it as a batch job."""

    executor: str

    def job(self, plane: ControlPlane, worker: WorkerProcess, script: str, **changes: Any) -> Lease:
        """Queue *script* (its results directory is $R) and return its lease, once it is claimed."""
        script = "R=$OPENFACE_RESULTS\n" + script
        if self.executor == "docker":
            dockerfile = (
                'FROM scratch\nCOPY busybox /bin/busybox\nRUN ["/bin/busybox", "--install", "-s", "/bin"]\n'
                'COPY run.sh /run.sh\nUSER 1000:1000\nCMD ["sh", "/run.sh"]\n'
            )
            files = container_files(Dockerfile=dockerfile, **{"run.sh": script})
        else:
            files = {"app.py": f"import subprocess, sys\nsys.exit(subprocess.call(['sh', '-c', {script!r}]))\n"}
        revision = make_repository(plane.git_root, "bench", files)
        claim = {} if self.executor == "docker" else {"app_file": "app.py"}
        job = plane.queue_job("bench", revision, mode="batch", **claim, **changes)
        plane.queue[-1]["artifacts_url"] = f"{plane.url}/artifacts/{job}"
        plane.signal("work")
        return eventually(lambda: plane.lease_of(job), what="the claim")


@pytest.fixture(params=["process", pytest.param("docker", marks=pytest.mark.docker)])
def kind(request: pytest.FixtureRequest) -> Kind:
    return Kind(request.param)


PROCESS = Kind("process")


def system(lease: Lease) -> str:
    return lease.logs["system"]


def test_every_regular_file_arrives_before_the_end_is_told(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()

    lease = kind.job(plane, worker, WRITES)
    eventually(lambda: lease.cleared, what="the end")

    assert lease.results == EXPECTED
    assert lease.state == "completed"
    assert "results: delivering 5 files, 2.5 MiB\n" in system(lease)
    told = [(event["kind"], event.get("files"), event.get("bytes")) for event in lease.events[-2:]]
    assert told == [("delivering", 5, sum(map(len, EXPECTED.values()))), ("exited", None, None)]
    assert "results: 2 links or special files are no results\n" in system(lease)
    assert system(lease).index("The app ended with code 0") < system(lease).index("results: delivered 5 files")


def test_a_job_without_results_just_ends(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()

    lease = PROCESS.job(plane, worker, "true")
    eventually(lambda: lease.cleared, what="the end")

    assert lease.state == "completed"
    assert "results: none\n" in system(lease)
    assert "delivering" not in lease.kinds()


def test_a_stopped_job_delivers_what_it_has(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()
    lease = kind.job(plane, worker, "printf so-far > $R/checkpoint; echo saved; exec sleep 300")
    eventually(lambda: "saved" in lease.logs["run"], what="the checkpoint")

    plane.stop_job(lease.claim["id"], grace_s=0)
    eventually(lambda: lease.cleared, what="the end")

    assert lease.kinds()[-1] == "stopped"
    assert lease.results == {"checkpoint": b"so-far"}


def test_the_time_goes_on_while_the_worker_is_away(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    lease = PROCESS.job(plane, worker, "exec sleep 300", limits={"run_timeout_s": 3600})
    eventually(lambda: lease.state == "running", what="running")
    worker.kill()
    [record] = (worker.data_dir / "jobs").glob("*.json")
    content = json.loads(record.read_text())
    content["running_since"] -= 3600  # as if an hour had passed
    record.write_text(json.dumps(content))

    worker.start()
    eventually(lambda: lease.cleared, what="the end")

    assert lease.events[-1]["reason"] == "time_limit"


# --- outages and kills ------------------------------------------------------------------------------------------------


def test_results_wait_in_the_container_over_an_outage_and_a_kill(
    plane: ControlPlane, make_worker: Make, kind: Kind
) -> None:
    worker = make_worker(executor=kind.executor).start()
    plane.results_taken = 2
    lease = kind.job(plane, worker, WRITES + "exit 3")
    eventually(lambda: "they wait in the container" in system(lease), what="the sentence about it")

    worker.kill()
    worker.start()
    eventually(lambda: "adopted after a restart" in system(lease), what="adoption")
    assert not lease.released
    plane.results_taken = None
    eventually(lambda: lease.cleared, what="the end")

    assert lease.results == EXPECTED
    assert (lease.state, lease.events[-1]["kind"], lease.events[-1]["code"]) == ("failed", "exited", 3)
    assert lease.kinds().count("exited") == 1


def test_what_was_cut_off_is_sent_again_and_the_rest_is_not(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    plane.lose_next_results = 2

    lease = PROCESS.job(plane, worker, WRITES)
    eventually(lambda: lease.cleared, what="the end")

    assert lease.results == EXPECTED
    assert "results: not delivered yet, they wait in the container" in system(lease)
    assert sum(call.startswith("PUT") for call in plane.artifact_calls) == len(EXPECTED)


def test_a_worker_that_is_shut_down_meanwhile_goes_on_after_its_next_start(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    plane.results_taken = 0
    lease = PROCESS.job(plane, worker, WRITES)
    eventually(lambda: "they wait in the container" in system(lease), what="the sentence about it")

    assert worker.terminate() == 0
    plane.results_taken = None
    worker.start()
    eventually(lambda: lease.cleared, what="the end")

    assert lease.results == EXPECTED
    assert lease.state == "completed"


def test_over_its_time_a_job_ends_with_that_reason_though_the_worker_is_killed_meanwhile(
    plane: ControlPlane, make_worker: Make
) -> None:
    worker = make_worker().start()
    plane.results_taken = 0
    lease = PROCESS.job(plane, worker, "printf x > $R/x; exec sleep 300", limits={"run_timeout_s": 1})
    eventually(lambda: "they wait in the container" in system(lease), what="the sentence about it")

    worker.kill()
    plane.results_taken = None
    worker.start()
    eventually(lambda: lease.cleared, what="the end")

    end = lease.events[-1]
    assert (end["kind"], end["reason"]) == ("failed", "time_limit")
    assert end["detail"] == "It computed for longer than 1 s, the limit of this job."
    assert lease.results == {"x": b"x"}


def test_without_its_lease_nothing_more_is_tried_and_nothing_is_left(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    plane.results_taken = 0
    lease = PROCESS.job(plane, worker, WRITES)
    eventually(lambda: "they wait in the container" in system(lease), what="the sentence about it")

    lease.released = True

    eventually(lambda: lease.cleared, what="clearing")
    assert lease.results == {}
    assert worker.journal() == []


def test_a_job_whose_results_cannot_be_delivered_goes_back_to_the_line_when_the_owner_wants_the_machine(
    plane: ControlPlane, make_worker: Make, command: Callable[..., Any]
) -> None:
    worker = make_worker().start()
    plane.results_taken = 0
    lease = PROCESS.job(plane, worker, WRITES)
    eventually(lambda: "they wait in the container" in system(lease), what="the sentence about it")

    command(worker, "pause", "--now")
    eventually(lambda: lease.cleared, what="the end")

    assert (lease.events[-1]["kind"], lease.events[-1]["reason"]) == ("declined", "paused")
    assert (lease.state, lease.left_out) == ("queued", [])


# --- limits -----------------------------------------------------------------------------------------------------------


def test_what_exceeds_the_quota_is_told_and_the_rest_is_kept(plane: ControlPlane, make_worker: Make) -> None:
    plane.artifact_quota |= {"max_file_bytes": MIB, "max_files": 3}
    worker = make_worker().start()

    lease = PROCESS.job(plane, worker, "for n in 1 2 3 4; do printf $n > $R/$n; done; " + WRITES.splitlines()[5])
    eventually(lambda: lease.cleared, what="the end")

    assert len(lease.results) == 3
    assert sorted(one["reason"] for one in lease.left_out) == ["file_too_large", "too_many_files"]
    assert "results: large.bin (2.5 MiB) is left out: file too large\n" in system(lease)
    assert lease.state == "completed"


# Made from its innermost directory on: a path of 6,000 bytes is longer than what can be given to the system.
DEEP = """
N=$(printf '%0200d' 0)
cd $R; mkdir cur; printf x > cur/bottom
for n in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30; do
    mkdir next; mv cur next/$N; mv next cur
done
"""


def test_what_lies_too_deep_is_told(plane: ControlPlane, make_worker: Make, kind: Kind) -> None:
    worker = make_worker(executor=kind.executor).start()

    lease = kind.job(plane, worker, DEEP + "printf y > beside")
    eventually(lambda: lease.cleared, what="the end")

    assert lease.results == {"beside": b"y"}
    assert "unreadable" in [one["reason"] for one in lease.left_out]
    assert "is left out: unreadable\n" in system(lease)
    assert lease.state == "completed"


def test_a_name_that_looks_like_another_is_kept_and_told(plane: ControlPlane, make_worker: Make) -> None:
    plane.artifact_quota |= {"max_files": 1}
    worker = make_worker().start()

    lease = PROCESS.job(plane, worker, "for n in 1 2; do printf x > $R/$n$(printf '\\342\\200\\256')gnp.exe; done")
    eventually(lambda: lease.cleared, what="the end")

    assert [path[1:] for path in lease.results] == ["\u202egnp.exe"]
    assert "results: 1 name has characters that turn text around" in system(lease)
    assert '\\342\\200\\256gnp.exe" (1 bytes) is left out: too many files\n' in system(lease)
    assert "\u202e" not in system(lease)


def test_a_server_that_knows_no_results_does_not_hold_the_job(plane: ControlPlane, make_worker: Make) -> None:
    worker = make_worker().start()
    plane.artifact_quota = {}  # an answer that this worker cannot read

    lease = PROCESS.job(plane, worker, "printf x > $R/x")
    eventually(lambda: lease.cleared, what="the end")

    assert lease.state == "completed"
    assert "results: the control plane does not take any" in system(lease)


@pytest.mark.docker
def test_a_file_that_is_all_hole_is_left_out_unread(plane: ControlPlane, make_worker: Make) -> None:
    """A tebibyte, made in no time; to read through it would take hours. What comes after it is kept."""
    worker = make_worker(executor="docker").start()

    lease = Kind("docker").job(
        plane,
        worker,
        "mkdir $R/b $R/empty; printf 1 > $R/a; truncate -s 1024G $R/b/hole\n"
        "printf 2 > $R/b/next; printf 3 > $R/c; ln -s c $R/d",
    )
    eventually(lambda: lease.cleared, what="the end")

    assert lease.results == {"a": b"1", "b/next": b"2", "c": b"3"}
    assert [(one["path"], one["reason"]) for one in lease.left_out] == [("b/hole", "file_too_large")]
    assert "results: 1 links or special files are no results\n" in system(lease)
    assert "more than could be looked at" not in system(lease)


@pytest.mark.docker
def test_the_worker_goes_on_looking_while_a_containers_files_are_read(plane: ControlPlane, make_worker: Make) -> None:
    """The engine answers no inspect of a container meanwhile; the inventory of a heartbeat must not wait for that."""
    worker = make_worker(executor="docker").start()
    lease = Kind("docker").job(plane, worker, "printf x > $R/x; exec sleep 300")
    eventually(lambda: lease.state == "running", what="running")
    engine = make_executor(load(worker.environment), str(plane.worker_id))
    [found] = engine.inventory()
    runtime = engine.find(JobRecord(found.facts))
    assert runtime is not None
    reading = runtime.results()
    assert reading is not None
    with closing(reading):
        next(reading)
        beats = len(plane.beats)
        assert [one.status for one in engine.inventory()] == ["running"]
        eventually(lambda: len(plane.beats) > beats + 3, what="heartbeats")
        assert plane.beats[-1]["accepting"]
        assert [hold["lease"] for hold in plane.beats[-1]["holds"]] == [lease.id]

    assert runtime.state().status == "running"  # the engine answers again
