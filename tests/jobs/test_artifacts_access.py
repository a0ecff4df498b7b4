"""Who may deliver results, and whose they are."""

from __future__ import annotations

import pytest
from django.utils import timezone

from jobs import artifacts
from jobs.errors import (
    NotYourArtifacts,
    StaleLease,
)
from jobs.models import Lease
from jobs.tokens import runtime_token, source_token
from tests.factories import JobFactory
from tests.jobs.results import deliver, lease_of

pytestmark = pytest.mark.django_db


def test_the_runtime_token_of_a_batch_jobs_own_lease_opens_it_and_nothing_else_does(lease: Lease) -> None:
    other = lease_of(JobFactory.create(mode="batch", state="running"))
    service = lease_of(JobFactory.create(mode="service", state="running"))

    assert artifacts.lease_of(lease.job_id, runtime_token(lease)) == lease
    wrong = [
        (lease, runtime_token(other)),
        (lease, source_token(lease)),
        (lease, ""),
        (service, runtime_token(service)),
    ]
    for mine, token in wrong:
        with pytest.raises(NotYourArtifacts):
            artifacts.lease_of(mine.job_id, token)


def test_a_released_lease_and_a_revoked_worker_open_nothing(lease: Lease) -> None:
    token = runtime_token(lease)
    Lease.objects.update(released_at=timezone.now())
    with pytest.raises(StaleLease):
        artifacts.lease_of(lease.job_id, token)

    lease.worker.revoked_at = timezone.now()
    lease.worker.save()
    with pytest.raises(NotYourArtifacts):
        artifacts.lease_of(lease.job_id, token)


def test_another_space_has_no_such_result(lease: Lease) -> None:
    deliver(lease, "a", b"a")

    assert artifacts.find(lease.job_id, "a", space_id=JobFactory.create().space_id) is None


def test_results_of_two_attempts_are_never_mixed(lease: Lease) -> None:
    deliver(lease, "old", b"1")
    deliver(lease, "both", b"1")
    Lease.objects.update(released_at=timezone.now())
    second = lease_of(lease.job, attempt=2)
    assert [file.path for file in artifacts.results_of(lease.job).files] == ["both", "old"]

    deliver(second, "both", b"2")

    assert [(file.path, file.lease_id) for file in artifacts.results_of(lease.job).files] == [("both", second.pk)]
    assert artifacts.find(lease.job_id, "old", space_id=lease.job.space_id) is None
