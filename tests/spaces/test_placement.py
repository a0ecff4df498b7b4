"""An operator decides where a Space runs: what later jobs need, what becomes of one that waits, and what is written."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db.models import ProtectedError

from jobs import lifecycle
from jobs.models import AuditEvent, Job, JobEvent, Lease
from jobs.requirements import spec_of
from jobs.scheduling import RequirementSpec
from jobs.states import JobState
from spaces import launch, placement
from spaces.models import Space
from spaces.placement import Placement, PlacementRefused, Wish, placed
from tests.factories import GpuWorkerFactory, UptimeFactory, WorkerFactory, ago
from tests.spaces.repositories import make_space
from workers import standing
from workers.models import Worker

pytestmark = pytest.mark.django_db

CPU = RequirementSpec(kind="cpu")
WHOLE = RequirementSpec(kind="gpu", gpu_count=1, exclusive=True)
TWELVE = RequirementSpec(kind="gpu", gpu_count=1, vram_mib=11_444, features=("cuda",))
NAMED = uuid.uuid4()


@pytest.mark.parametrize(
    ("wanted", "placement", "needs"),
    [
        (CPU, "automatic", CPU),
        (TWELVE, "automatic", TWELVE),
        (CPU, "cpu", CPU),
        (TWELVE, "cpu", CPU),
        (CPU, "gpu", WHOLE),
        (TWELVE, "gpu", TWELVE),
        (CPU, "worker", RequirementSpec(kind="cpu", worker_id=NAMED)),
        (
            TWELVE,
            "worker",
            RequirementSpec(kind="gpu", gpu_count=1, vram_mib=11_444, features=("cuda",), worker_id=NAMED),
        ),
    ],
)
def test_a_placement_goes_before_the_topics(wanted: RequirementSpec, placement: str, needs: RequirementSpec) -> None:
    assert placed(wanted, placement, NAMED) == needs


def claim(worker: Worker) -> lifecycle.Claim | None:
    return lifecycle.claim_next(worker.pk, session=1, free_gpu=9, free_cpu=9, key=str(uuid.uuid4()))


def test_it_outlives_restarts_of_the_space(owner: User, operator: User) -> None:
    space = make_space("alice/app")
    placement.place(space.pk, placement.wish("gpu"), actor=operator)

    first = launch.start(space, user=owner)
    lifecycle.request_stop(first.pk)
    second = launch.start(space, user=owner)

    assert spec_of(first.requirement) == spec_of(second.requirement) == WHOLE


def test_a_cpu_space_runs_on_a_remote_gpu_worker_that_is_named(owner: User, operator: User) -> None:
    UptimeFactory.create()
    worker = GpuWorkerFactory.create(name="gpu1", max_cpu_jobs=2)
    space = make_space("alice/app")
    launch.start(space, user=owner)
    assert claim(worker) is None

    placement.place(space.pk, placement.wish("worker", "GPU1"), actor=operator)

    taken = claim(worker)
    assert taken is not None and taken.job.requirement.worker_id == worker.pk


# --- a job that waits ------------------------------------------------------------------------------------------------


def test_a_job_in_line_gets_the_new_needs_at_once_and_keeps_its_place(owner: User, operator: User) -> None:
    space = make_space("alice/app", topics=("space", "gpu"))
    job = launch.start(space, user=owner)
    later = launch.start(make_space("alice/later"), user=owner)

    done = placement.place(space.pk, placement.wish("cpu"), actor=operator, reason="no GPU for weeks")

    assert done.moved == [job]
    again = Job.objects.get(pk=job.pk)
    assert (spec_of(again.requirement), again.seq, again.state) == (CPU, job.seq, JobState.QUEUED)
    taken = claim(WorkerFactory.create())
    assert taken is not None and taken.job == job
    assert later.seq > job.seq
    event = JobEvent.objects.get(job=job, event="placed")
    assert (event.from_state, event.to_state, event.actor) == ("queued", "queued", "otto")
    assert event.reason == "An operator placed it on a CPU: no GPU for weeks."


def test_a_job_that_waits_for_the_run_before_it_gets_them_too(owner: User, operator: User) -> None:
    space = make_space("alice/app")
    launch.start(space, user=owner)
    assert claim(WorkerFactory.create()) is not None
    second = launch.start(space, user=owner, replace=True)

    done = placement.place(space.pk, placement.wish("gpu"), actor=operator)

    assert done.moved == [second]
    assert spec_of(Job.objects.get(pk=second.pk).requirement) == WHOLE


def test_what_a_worker_has_goes_on_where_it_is(owner: User, operator: User) -> None:
    space = make_space("alice/app")
    job = launch.start(space, user=owner)
    assert claim(WorkerFactory.create()) is not None

    done = placement.place(space.pk, placement.wish("gpu"), actor=operator)

    assert (done.moved, done.stays) == ([], job)
    again = Job.objects.get(pk=job.pk)
    assert (spec_of(again.requirement), again.state) == (CPU, JobState.LEASED)


def test_an_expired_attempt_cannot_be_resumed_against_the_operators_will(owner: User, operator: User) -> None:
    UptimeFactory.create()
    space, worker = make_space("alice/app"), WorkerFactory.create()
    job = launch.start(space, user=owner)
    taken = claim(worker)
    assert taken is not None
    Lease.objects.update(expires_at=ago(600))
    assert lifecycle.expire_lease(taken.lease.pk, now=ago(0), up_since=ago(86_400))

    placement.place(space.pk, placement.wish("gpu"), actor=operator)

    lease = Lease.objects.get()
    assert lease.released_at is not None and lease.cleared_at is None
    assert Job.objects.get(pk=job.pk).state == JobState.QUEUED


def test_a_job_whose_last_attempt_expired_is_left_to_its_worker(owner: User, operator: User) -> None:
    space = make_space("alice/app")
    job = launch.start(space, user=owner)
    Job.objects.update(attempts=3)

    done = placement.place(space.pk, placement.wish("gpu"), actor=operator)

    assert (done.moved, done.stays) == ([], job)
    assert spec_of(Job.objects.get().requirement) == CPU


@pytest.mark.django_db(transaction=True)
def test_whoever_is_first_a_job_never_waits_under_an_older_placement(
    owner: User, operator: User, at_once: Callable[..., list[Any]]
) -> None:
    spaces = [make_space(f"alice/app{number}", topics=("space", "gpu")) for number in range(8)]
    cpu = placement.wish("cpu")

    results = at_once(
        act
        for space in spaces
        for act in (
            lambda space=space: launch.start(space, user=owner),
            lambda space=space: placement.place(space.pk, cpu, actor=operator),
        )
    )

    assert not [result for result in results if isinstance(result, Exception)]
    assert {spec_of(job.requirement) for job in Job.objects.select_related("requirement")} == {CPU}


@pytest.mark.django_db(transaction=True)
def test_a_claim_and_a_placement_at_once_leave_no_job_with_a_worker_that_it_does_not_fit(
    owner: User, operator: User, at_once: Callable[..., list[Any]]
) -> None:
    UptimeFactory.create()
    worker = WorkerFactory.create()
    spaces = [make_space(f"alice/app{number}") for number in range(8)]
    for space in spaces:
        launch.start(space, user=owner)
    gpu = placement.wish("gpu")

    results = at_once(
        act
        for space in spaces
        for act in (lambda: claim(worker), lambda space=space: placement.place(space.pk, gpu, actor=operator))
    )

    assert not [result for result in results if isinstance(result, Exception)]
    for job in Job.objects.select_related("requirement"):
        assert spec_of(job.requirement) == (WHOLE if job.state == JobState.QUEUED else CPU)


# --- what is written -------------------------------------------------------------------------------------------------


def test_before_after_and_reason_are_in_the_audit(operator: User) -> None:
    WorkerFactory.create(name="gpu1")
    space = make_space("alice/app")
    placement.place(space.pk, placement.wish("cpu"), actor=operator)

    placement.place(space.pk, placement.wish("worker", "gpu1"), actor=operator, reason="its data is there")

    event = AuditEvent.objects.first()
    assert event is not None
    assert (event.act, event.actor_name, event.object_name) == ("space_placement", "otto", "alice/app")
    assert event.before == {"placement": "cpu", "worker": None}
    assert event.after == {"placement": "worker", "worker": "gpu1"}
    assert event.reason == "its data is there"


def test_the_same_wish_again_changes_and_writes_nothing(owner: User, operator: User) -> None:
    space = make_space("alice/app")
    launch.start(space, user=owner)
    placement.place(space.pk, placement.wish("gpu"), actor=operator)
    written = AuditEvent.objects.count(), JobEvent.objects.count()

    done = placement.place(space.pk, placement.wish("gpu"), actor=operator)

    assert not done.changed
    assert (AuditEvent.objects.count(), JobEvent.objects.count()) == written


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "worker", "sentence"),
    [
        ("moon", None, "There is no placement “moon”: choose one of automatic, cpu, gpu, worker."),
        ("worker", None, "Name the worker on which it shall run."),
        ("worker", "  ", "Name the worker on which it shall run."),
        ("worker", "nobody", "There is no worker nobody."),
        ("worker", "no\x00body", "There is no worker no\x00body."),
        ("gpu", "gpu1", "A worker is named only with the placement “worker”."),
    ],
)
def test_a_wish_that_means_nothing_is_refused_with_a_sentence(value: str, worker: str | None, sentence: str) -> None:
    WorkerFactory.create(name="gpu1")

    with pytest.raises(PlacementRefused) as refused:
        placement.wish(value, worker)

    assert str(refused.value) == sentence


def test_a_revoked_worker_cannot_be_named_anew(operator: User) -> None:
    worker = WorkerFactory.create(name="gpu1")
    standing.revoke(worker.pk, actor=None)
    space = make_space("alice/app")

    with pytest.raises(PlacementRefused, match="gpu1 was revoked"):
        placement.place(space.pk, placement.wish("worker", "gpu1"), actor=operator)

    assert Space.objects.get().placement == Placement.AUTOMATIC
    assert not AuditEvent.objects.filter(act="space_placement").exists()


def test_a_placement_survives_the_revocation_of_its_worker(operator: User) -> None:
    worker = WorkerFactory.create(name="gpu1")
    space = make_space("alice/app")
    placement.place(space.pk, placement.wish("worker", "gpu1"), actor=operator)

    standing.revoke(worker.pk, actor=None)

    assert Wish.of(Space.objects.get()) == Wish(Placement.WORKER, worker)


def test_the_row_of_a_named_worker_cannot_be_deleted(operator: User) -> None:
    worker = WorkerFactory.create(name="gpu1")
    space = make_space("alice/app")
    placement.place(space.pk, placement.wish("worker", "gpu1"), actor=operator)

    with pytest.raises(ProtectedError, match="placement_worker"):
        worker.delete()
