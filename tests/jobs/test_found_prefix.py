"""What an app was found to want of its prefix is kept with its run, for the data plane and the owner's eyes."""

from __future__ import annotations

import pytest

from jobs.lifecycle import Report, record
from jobs.models import Job, Lease
from tests.factories import JobFactory, WorkerFactory
from tests.jobs.conftest import must_claim

pytestmark = pytest.mark.django_db


def claimed() -> Lease:
    worker = WorkerFactory.create()
    JobFactory.create(spec={"prefix": "detect", "app_port": 8080})
    return Lease.objects.get(pk=must_claim(worker).lease.pk)


def tell(lease: Lease, *reports: Report) -> Job:
    record(lease.worker_id, session=1, job_id=lease.job_id, lease_id=lease.pk, reports=reports)
    return Job.objects.get(pk=lease.job_id)


@pytest.mark.parametrize("found", ["keep", "strip"])
def test_it_is_kept_beside_what_the_run_was_told(found: str) -> None:
    job = tell(claimed(), Report(1, "starting"), Report(2, "running", {"prefix": found}))

    assert (job.state, job.spec) == ("running", {"prefix": "detect", "app_port": 8080, "found_prefix": found})


@pytest.mark.parametrize("data", [{}, {"prefix": None}, {"prefix": "a word of later"}])
def test_a_worker_that_does_not_know_changes_nothing(data: dict[str, object]) -> None:
    job = tell(claimed(), Report(1, "starting"), Report(2, "running", data))

    assert (job.state, job.spec) == ("running", {"prefix": "detect", "app_port": 8080})


def test_an_app_that_is_started_anew_is_looked_at_anew() -> None:
    lease = claimed()
    tell(lease, Report(1, "starting"), Report(2, "running", {"prefix": "strip"}))

    job = tell(lease, Report(3, "starting", {"reason": "host_rebooted"}), Report(4, "running", {"prefix": "keep"}))

    assert job.spec["found_prefix"] == "keep"
