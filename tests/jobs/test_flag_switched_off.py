"""OPENFACE_GPU_WORKERS_ENABLED off: what becomes of the jobs of remote workers, and that it all comes back."""

from __future__ import annotations

from typing import Any

import pytest

from jobs import rescue, switch
from jobs.errors import StaleLease
from jobs.lifecycle import Claim, Hold, Report, record, renew_lease, request_stop, sync_holds
from jobs.models import Job, JobEvent, Lease, RemoteSwitch, Reservation
from jobs.states import JobState
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, WorkerFactory, ago
from tests.jobs.conftest import must_claim
from workers.models import Worker
from workers.offers import offers_for

pytestmark = pytest.mark.django_db

STEPS = {"building": 1, "starting": 2, "running": 3}


def gpu_job() -> Job:
    job: Job = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    return job


def brought_to(state: str, worker: Worker, job: Job) -> Claim:
    """A job that this worker has taken and reported on until it is in this state."""
    claimed = must_claim(worker, key=str(job.pk))
    assert claimed.job == job
    reports = [Report(seq, kind) for kind, seq in STEPS.items() if seq <= STEPS.get(state, 0)]
    record(worker.pk, session=worker.session, job_id=job.pk, lease_id=claimed.lease.pk, reports=reports)
    assert Job.objects.get(pk=job.pk).state == state
    return claimed


def says(worker: Worker, claimed: Claim, state: str = "running") -> str:
    """A heartbeat that lists the lease; returns what is wanted of it."""
    (instruction,) = sync_holds(worker.pk, holds=[Hold(claimed.lease.pk, state)])
    return instruction.want


def as_it_is(job: Job) -> Job:
    return Job.objects.get(pk=job.pk)


@pytest.fixture
def remote() -> Worker:
    worker: Worker = GpuWorkerFactory.create(name="gpu1")
    return worker


@pytest.fixture
def off(settings: Any) -> Any:
    """Switch remote workers off or on, and let the keeper sweep."""

    def turn(enabled: bool = False) -> rescue.Swept:
        settings.OPENFACE_GPU_WORKERS_ENABLED = enabled
        return rescue.sweep()

    return turn


def test_what_runs_is_shown_unavailable_and_keeps_its_lease(remote: Worker, off: Any) -> None:
    job = gpu_job()
    claimed = brought_to("running", remote, job)

    assert off().withheld == 1

    job = as_it_is(job)
    assert (job.state, job.reason_code) == (JobState.UNAVAILABLE, "gpu_workers_disabled")
    assert Lease.objects.get(pk=claimed.lease.pk).released_at is None
    assert Reservation.objects.filter(cleared_at=None).count() == 1
    assert says(remote, claimed) == "keep"


@pytest.mark.parametrize("state", ["leased", "building", "starting"])
def test_what_was_coming_goes_back_to_the_line_uncounted(remote: Worker, off: Any, state: str) -> None:
    job = gpu_job()
    claimed = brought_to(state, remote, job)

    off()

    job = as_it_is(job)
    assert (job.state, job.attempts, job.worker) == (JobState.QUEUED, 0, None)
    lease = Lease.objects.get(pk=claimed.lease.pk)
    assert lease.released_at is not None and lease.cleared_at is None  # the machine may still have a container
    assert says(remote, claimed, state) == "remove"
    with pytest.raises(StaleLease):
        record(remote.pk, session=1, job_id=job.pk, lease_id=claimed.lease.pk, reports=[Report(9, "running")])
    sync_holds(remote.pk, holds=[])
    assert not Reservation.objects.filter(cleared_at=None).exists()


def test_a_job_that_a_silent_machine_might_resume_is_let_go(remote: Worker, off: Any) -> None:
    job = gpu_job()
    claimed = brought_to("building", remote, job)
    Lease.objects.update(expires_at=ago(60))
    rescue.sweep()
    assert as_it_is(job).state == JobState.QUEUED

    off()

    assert Lease.objects.get(pk=claimed.lease.pk).released_at is not None
    with pytest.raises(StaleLease):
        renew_lease(remote.pk, session=1, job_id=job.pk, lease_id=claimed.lease.pk)


@pytest.mark.parametrize("registering", [False, True], ids=["heartbeat", "register"])
def test_a_machine_that_says_running_does_not_move_it_back(remote: Worker, off: Any, registering: bool) -> None:
    job = gpu_job()
    claimed = brought_to("running", remote, job)
    off()

    sync_holds(remote.pk, holds=[Hold(claimed.lease.pk, "running")], registering=registering)
    recorded = record(
        remote.pk,
        session=1,
        job_id=job.pk,
        lease_id=claimed.lease.pk,
        reports=[Report(4, "snapshot", {"state": "running"})],
    )

    assert (recorded.accepted_through, recorded.state) == (4, "unavailable")
    assert as_it_is(job).state == JobState.UNAVAILABLE


def test_on_again_it_runs_with_the_same_lease_and_without_a_restart(remote: Worker, off: Any) -> None:
    job = gpu_job()
    claimed = brought_to("running", remote, job)
    off()
    says(remote, claimed)

    off(enabled=True)
    assert says(remote, claimed) == "keep"

    job = as_it_is(job)
    assert (job.state, job.reason_code, job.attempts) == (JobState.RUNNING, "gpu_workers_enabled", 1)
    assert list(Lease.objects.filter(job=job, released_at=None)) == [claimed.lease]
    assert [event.to_state for event in JobEvent.objects.filter(job=job)][-2:] == ["unavailable", "running"]


def test_sweeping_again_writes_nothing_more(remote: Worker, off: Any) -> None:
    job = gpu_job()
    brought_to("running", remote, job)
    off()
    events = JobEvent.objects.count()

    assert off().withheld == 0
    assert JobEvent.objects.count() == events


@pytest.mark.parametrize(
    ("report", "state"),
    [
        (Report(4, "exited", {"code": 1, "oom_killed": False}), JobState.FAILED),
        (Report(4, "failed", {"reason": "gpu_lost"}), JobState.FAILED),
        (Report(4, "stopped"), JobState.FAILED),
    ],
    ids=["exited", "failed", "stopped"],
)
def test_its_end_is_taken_meanwhile(remote: Worker, off: Any, report: Report, state: JobState) -> None:
    job = gpu_job()
    claimed = brought_to("running", remote, job)
    off()

    record(remote.pk, session=1, job_id=job.pk, lease_id=claimed.lease.pk, reports=[report])

    assert as_it_is(job).state == state


def test_a_batch_job_finishes_meanwhile(remote: Worker, off: Any) -> None:
    job = JobFactory.create(mode="batch", requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    claimed = brought_to("running", remote, job)
    off()

    done = Report(4, "exited", {"code": 0, "oom_killed": False})
    record(remote.pk, session=1, job_id=job.pk, lease_id=claimed.lease.pk, reports=[done])

    assert as_it_is(job).state == JobState.COMPLETED


def test_a_stop_goes_through_the_machine_that_is_heard(remote: Worker, off: Any) -> None:
    job = gpu_job()
    claimed = brought_to("running", remote, job)
    off()

    request_stop(job.pk)

    assert as_it_is(job).state == JobState.STOPPING
    assert off().withheld == 0  # a stop that is under way is left alone
    assert says(remote, claimed) == "stop"
    record(remote.pk, session=1, job_id=job.pk, lease_id=claimed.lease.pk, reports=[Report(4, "stopped")])
    assert as_it_is(job).state == JobState.COMPLETED


def test_a_stop_of_a_silent_machines_job_works_at_once(remote: Worker, off: Any) -> None:
    job = gpu_job()
    brought_to("running", remote, job)
    off()
    Worker.objects.update(last_seen_at=ago(3600))

    request_stop(job.pk)

    assert as_it_is(job).state == JobState.COMPLETED


def test_local_workers_go_on_as_before(off: Any) -> None:
    local = WorkerFactory.create()
    jobs = [JobFactory.create() for _ in range(3)]
    running = brought_to("running", local, jobs[0])
    brought_to("building", local, jobs[1])

    off()

    assert [as_it_is(job).state for job in jobs] == ["running", "building", "queued"]
    assert must_claim(local, "next").job == jobs[2]
    assert says_all(local, running) == "keep"


def says_all(worker: Worker, claimed: Claim) -> str:
    holds = [Hold(pk, "running") for pk in Lease.objects.filter(worker=worker).values_list("pk", flat=True)]
    wants = {each.lease_id: each.want for each in sync_holds(worker.pk, holds=holds)}
    return wants[claimed.lease.pk]


def test_what_was_silent_already_says_the_reason_that_holds(remote: Worker, off: Any) -> None:
    job = gpu_job()
    brought_to("running", remote, job)
    Worker.objects.update(last_seen_at=ago(3600))
    rescue.sweep()
    assert as_it_is(job).reason_code == "worker_silent"

    off()
    assert as_it_is(job).reason_code == "gpu_workers_disabled"

    off(enabled=True)
    assert (as_it_is(job).state, as_it_is(job).reason_code) == (JobState.UNAVAILABLE, "worker_silent")
    events = JobEvent.objects.count()
    off(enabled=True)
    assert JobEvent.objects.count() == events


class TestOneTruthForAllProcesses:
    """Two processes with different settings, in the middle of a restart, do not move jobs to and fro."""

    def test_the_web_process_that_started_last_decides(self, settings: Any) -> None:
        settings.OPENFACE_GPU_WORKERS_ENABLED = True
        assert switch.declare()
        settings.OPENFACE_GPU_WORKERS_ENABLED = False
        assert switch.remote_workers_enabled()  # a shell, or a keeper, that was told otherwise

        assert switch.declare()
        assert not switch.remote_workers_enabled()
        assert not switch.declare()
        assert RemoteSwitch.objects.count() == 1

    def test_an_older_process_with_the_old_value_does_not_bring_jobs_back(self, remote: Worker, settings: Any) -> None:
        job = gpu_job()
        claimed = brought_to("running", remote, job)
        settings.OPENFACE_GPU_WORKERS_ENABLED = False
        switch.declare()
        rescue.sweep()
        settings.OPENFACE_GPU_WORKERS_ENABLED = True  # as the process that still serves was started
        events = JobEvent.objects.count()

        for _ in range(3):
            says(remote, claimed)
            rescue.sweep()

        assert as_it_is(job).state == JobState.UNAVAILABLE
        assert JobEvent.objects.count() == events

    def test_whether_simulated_gpus_take_jobs_is_its_word_too(self, settings: Any) -> None:
        """`manage.py placement` on a shell with other settings judges as the claims do."""
        GpuWorkerFactory.create(name="sim", gpus=[{"simulated": True}])
        settings.OPENFACE_ALLOW_SIMULATED_GPUS = True
        switch.declare()
        settings.OPENFACE_ALLOW_SIMULATED_GPUS = False  # this process is another one from now on

        (offer,) = offers_for(None)
        assert offer.simulated_allowed

        assert switch.declare() is True
        (offer,) = offers_for(None)
        assert not offer.simulated_allowed
        assert switch.declare() is False

    def test_a_web_process_of_before_leaves_simulated_gpus_to_each_ones_setting(self, settings: Any) -> None:
        GpuWorkerFactory.create(name="sim", gpus=[{"simulated": True}])
        RemoteSwitch.objects.create(enabled=True)

        for allowed in (True, False):
            settings.OPENFACE_ALLOW_SIMULATED_GPUS = allowed
            (offer,) = offers_for(None)
            assert offer.simulated_allowed is allowed

    def test_before_any_web_process_started_the_setting_counts(self, settings: Any) -> None:
        settings.OPENFACE_GPU_WORKERS_ENABLED = False
        assert not switch.remote_workers_enabled()
        settings.OPENFACE_GPU_WORKERS_ENABLED = True
        assert switch.remote_workers_enabled()


@pytest.mark.django_db(transaction=True)
def test_switching_off_while_reports_arrive_leaves_nothing_between(remote: Worker, settings: Any, at_once: Any) -> None:
    """A report and the keeper meet: whatever comes first, the job ends where the switch wants it."""
    jobs = [gpu_job() for _ in range(4)]
    gpus = [GpuWorkerFactory.create() for _ in jobs]
    claims = [brought_to("starting", worker, job) for worker, job in zip(gpus, jobs, strict=True)]
    settings.OPENFACE_GPU_WORKERS_ENABLED = False

    def report(worker: Worker, claimed: Claim) -> Any:
        batch = [Report(3, "running")]
        return record(worker.pk, session=1, job_id=claimed.job.pk, lease_id=claimed.lease.pk, reports=batch)

    reports = [lambda w=w, c=c: report(w, c) for w, c in zip(gpus, claims, strict=True)]
    results = at_once([reports[0], rescue.sweep, reports[1], reports[2], rescue.sweep, reports[3]])

    assert all(not isinstance(result, Exception) or isinstance(result, StaleLease) for result in results), results
    rescue.sweep()
    for job in jobs:
        state = as_it_is(job).state
        unreleased = Lease.objects.filter(job=job, released_at=None).count()
        assert (state, unreleased) in {(JobState.UNAVAILABLE, 1), (JobState.QUEUED, 0)}
