"""Stop pressed at any moment wins over whatever the worker reports later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jobs import rescue
from jobs.errors import StaleLease
from jobs.lifecycle import Hold, Report, Submission, record, request_stop, stop_space, submit, sync_holds
from jobs.models import Job, Lease
from jobs.scheduling import RequirementSpec
from jobs.states import JobState
from tests.factories import REVISION, JobFactory, SpaceFactory, WorkerFactory, ago
from tests.jobs.conftest import claim, must_claim
from workers.models import Worker

pytestmark = pytest.mark.django_db

STEPS = ["leased", "building", "starting", "running"]
EVENTS = {"declined": "declined", "failed": "broke", "stopped": "stopped"}


def job_at(step: str) -> tuple[Job, Any, Lease]:
    """A job that its worker has brought to `step`."""
    job, worker = JobFactory.create(), WorkerFactory.create()
    lease = must_claim(worker).lease
    for seq, kind in enumerate(STEPS[1 : STEPS.index(step) + 1], start=1):
        record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(seq, kind)])
    job.refresh_from_db()
    lease.refresh_from_db()
    assert job.state == step
    return job, worker, lease


def test_a_queued_job_is_cancelled_at_once() -> None:
    job = JobFactory.create()

    request_stop(job.pk)

    job.refresh_from_db()
    assert job.state == JobState.CANCELLED
    assert claim(WorkerFactory.create()) is None


def test_a_stop_is_final_at_once_where_the_workers_reports_are_refused() -> None:
    job, worker, lease = job_at("running")
    Worker.objects.filter(pk=worker.pk).update(refused_since=ago(5))

    request_stop(job.pk)

    job.refresh_from_db()
    lease.refresh_from_db()
    assert (job.state, lease.released_at is not None, lease.cleared_at) == (JobState.COMPLETED, True, None)
    told = sync_holds(worker.pk, holds=[Hold(lease.pk, "running")])
    assert [each.want for each in told] == ["remove"], "told with the next report that is taken"


def test_a_stop_that_a_worker_can_no_longer_hear_of_ends_and_what_runs_there_goes_on() -> None:
    job, worker, _ = job_at("running")
    other = JobFactory.create()
    record(
        worker.pk,
        session=1,
        job_id=other.pk,
        lease_id=must_claim(worker, "k2").lease.pk,
        reports=[Report(1, "running")],
    )
    request_stop(job.pk)
    Worker.objects.filter(pk=worker.pk).update(refused_since=ago(300), last_seen_at=ago(0))

    assert rescue.sweep().silent == 1

    for each in (job, other):
        each.refresh_from_db()
    assert (job.state, other.state) == (JobState.COMPLETED, JobState.RUNNING)


def test_a_job_that_was_handed_back_while_it_ran_keeps_its_place_and_waits_from_then_on() -> None:
    job, worker, lease = job_at("running")
    Job.objects.filter(pk=job.pk).update(queued_at=ago(3 * 86_400))
    seq = job.seq

    record(
        worker.pk,
        session=1,
        job_id=job.pk,
        lease_id=lease.pk,
        reports=[Report(lease.accepted_through + 1, "declined", {"reason": "paused"})],
    )

    job.refresh_from_db()
    assert (job.state, job.seq) == (JobState.QUEUED, seq)
    assert job.queued_at > ago(60)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("later", ["building", "starting", "running", "health"])
def test_what_the_worker_reports_after_a_stop_is_kept_but_changes_nothing(step: str, later: str) -> None:
    job, worker, lease = job_at(step)
    request_stop(job.pk)

    answer = record(
        worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(lease.accepted_through + 1, later)]
    )

    assert (answer.state, answer.stop) == (JobState.STOPPING, True)


@pytest.mark.parametrize(("step", "end"), [(s, "completed" if s == "running" else "cancelled") for s in STEPS])
@pytest.mark.parametrize("kind", ["stopped", "exited", "failed", "declined"])
def test_any_end_that_the_worker_reports_is_the_stop(step: str, end: str, kind: str) -> None:
    job, worker, lease = job_at(step)
    request_stop(job.pk)

    record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(lease.accepted_through + 1, kind)])

    job.refresh_from_db()
    lease.refresh_from_db()
    assert job.state == end
    assert lease.released_at is not None


@pytest.mark.parametrize("code", ["stopped_by_person", "superseded", "worker_disabled"])
@pytest.mark.parametrize(
    ("kind", "reported"), [("declined", "shutdown"), ("failed", "build_failed"), ("stopped", "stopped")]
)
def test_a_stopped_job_keeps_the_reason_of_the_stop_and_history_that_of_the_report(
    code: str, kind: str, reported: str
) -> None:
    job, worker, lease = job_at("building")
    request_stop(job.pk, code=code, reason="Said by who stopped it.")

    report = Report(lease.accepted_through + 1, kind, {"reason": reported})
    record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[report])

    job.refresh_from_db()
    assert (job.state, job.reason_code, job.reason) == ("cancelled", code, "Said by who stopped it.")
    assert job.events.get(event=EVENTS[kind]).reason_code == reported


def test_a_stopped_job_whose_container_is_lost_was_stopped_and_not_lost() -> None:
    job, worker, _ = job_at("running")
    request_stop(job.pk)

    sync_holds(worker.pk, holds=[], registering=True)

    job.refresh_from_db()
    assert (job.state, job.reason_code) == ("completed", "stopped_by_person")
    assert job.events.get(event="lost").reason_code == "container_lost"


@pytest.mark.parametrize("step", STEPS)
def test_the_worker_is_told_to_stop_in_its_next_heartbeat(step: str) -> None:
    job, worker, lease = job_at(step)
    request_stop(job.pk, reason="No longer needed.")

    (instruction,) = sync_holds(worker.pk, holds=[Hold(lease.pk, step)])

    assert (instruction.lease_id, instruction.want, instruction.reason) == (lease.pk, "stop", "No longer needed.")


def test_a_second_stop_changes_no_time() -> None:
    job, *_ = job_at("running")
    first = request_stop(job.pk)

    second = request_stop(job.pk)

    assert (second.stop_requested_at, second.state_since) == (first.stop_requested_at, first.state_since)
    assert job.events.filter(event="stop").count() == 1


@pytest.mark.parametrize(("step", "end"), [(s, "completed" if s == "running" else "cancelled") for s in STEPS])
def test_stopping_a_job_of_a_silent_worker_is_final_at_once_and_enforced_on_its_return(step: str, end: str) -> None:
    job, worker, lease = job_at(step)
    worker.last_seen_at = ago(1_000)
    worker.save()

    request_stop(job.pk)

    job.refresh_from_db()
    assert job.state == end
    assert "when it returns" in job.reason
    (instruction,) = sync_holds(worker.pk, holds=[Hold(lease.pk, step)])
    assert instruction.want == "remove"
    with pytest.raises(StaleLease):
        record(worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(9, "running")])


def test_a_worker_that_falls_silent_while_stopping_ends_the_job() -> None:
    job, worker, _ = job_at("running")
    request_stop(job.pk)
    worker.last_seen_at = ago(1_000)
    worker.save()

    rescue.sweep()

    job.refresh_from_db()
    assert job.state == JobState.COMPLETED


def submission(space: Any) -> Submission:
    return Submission(space.pk, space.repository_id, space.owner, space.name, REVISION, RequirementSpec("cpu"))


def test_start_right_after_stop_waits_for_the_old_run_and_then_goes() -> None:
    space = SpaceFactory.create()
    worker = WorkerFactory.create()
    old = submit(submission(space))
    lease = must_claim(worker).lease
    request_stop(old.pk)

    new = submit(submission(space))

    assert new != old
    assert new.blocked_by == old
    assert claim(worker, "k2") is None
    record(worker.pk, session=1, job_id=old.pk, lease_id=lease.pk, reports=[Report(1, "stopped")])
    assert must_claim(worker, "k3").job == new


def test_a_second_start_finds_the_first() -> None:
    space = SpaceFactory.create()

    assert submit(submission(space)) == submit(submission(space))


def test_a_restart_is_a_new_job_that_replaces_the_old_one() -> None:
    space = SpaceFactory.create()
    old = submit(submission(space))
    must_claim(WorkerFactory.create())

    new = submit(submission(space), replace=True)

    old.refresh_from_db()
    assert (new.replaces, new.blocked_by, old.state, old.reason_code) == (old, old, JobState.STOPPING, "superseded")


def test_two_restarts_in_a_row_leave_one_that_waits_for_the_container_to_go() -> None:
    space = SpaceFactory.create()
    worker = WorkerFactory.create()
    first = submit(submission(space))
    lease = must_claim(worker).lease

    submit(submission(space), replace=True)
    third = submit(submission(space), replace=True)

    assert third.blocked_by == first
    record(worker.pk, session=1, job_id=first.pk, lease_id=lease.pk, reports=[Report(1, "stopped")])
    assert must_claim(worker, "k2").job == third


def test_stopping_a_space_ends_what_serves_and_what_is_coming() -> None:
    space = SpaceFactory.create()
    first = submit(submission(space))
    must_claim(WorkerFactory.create())
    second = submit(submission(space), replace=True)

    stop_space(space.pk)

    first.refresh_from_db()
    second.refresh_from_db()
    assert (first.state, second.state) == (JobState.STOPPING, JobState.CANCELLED)


@pytest.mark.django_db(transaction=True)
def test_stop_and_ready_at_the_same_moment_end_in_stopping(at_once: Callable[..., list[Any]]) -> None:
    for _ in range(10):
        job, worker, lease = job_at("starting")
        seq = lease.accepted_through + 1

        results = at_once(
            [
                lambda job=job: request_stop(job.pk),
                lambda worker=worker, job=job, lease=lease, seq=seq: record(
                    worker.pk, session=1, job_id=job.pk, lease_id=lease.pk, reports=[Report(seq, "running")]
                ),
            ]
        )

        assert [r for r in results if isinstance(r, Exception)] == []
        job.refresh_from_db()
        assert job.state == JobState.STOPPING


@pytest.mark.django_db(transaction=True)
def test_many_starts_at_once_make_one_job(at_once: Callable[..., list[Any]]) -> None:
    space = SpaceFactory.create()

    answers = at_once([lambda: submit(submission(space))] * 8)

    assert len({job.pk for job in answers}) == 1
