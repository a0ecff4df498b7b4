"""Machines that are away: when they count as offline, and what becomes of them however long it takes."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from jobs import rescue
from jobs.clock import now_and_up_since
from jobs.lifecycle import Report, record
from jobs.models import Job, JobEvent, Lease, Reservation, Uptime
from jobs.states import JobState
from tests.factories import GpuWorkerFactory, JobFactory, RequirementFactory, UptimeFactory, UserFactory, ago
from tests.jobs.conftest import must_claim
from workers.intervals import intervals
from workers.models import Worker
from workers.overview import as_json, fleet

pytestmark = pytest.mark.django_db


def online(worker: Worker) -> bool:
    now, up_since = now_and_up_since()
    return Worker.objects.get(pk=worker.pk).is_online(now=now, up_since=up_since)


class TestMissedBeats:
    @pytest.mark.parametrize(("heartbeat", "stale"), [(15, 120), (30, 120), (60, 120), (600, 90), (0.5, 4)])
    def test_three_may_be_lost_whatever_is_configured(self, settings: Any, heartbeat: float, stale: float) -> None:
        settings.OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS = heartbeat
        settings.OPENFACE_GPU_WORKER_STALE_SECONDS = stale

        told = intervals()

        assert 3 * told["heartbeat_seconds"] < told["stale_seconds"]
        worker = GpuWorkerFactory.create(last_seen_at=ago(3.5 * told["heartbeat_seconds"]))
        assert online(worker)

    def test_late_and_lost_beats_write_nothing_and_a_real_absence_one_event(self, settings: Any) -> None:
        """A machine that beats every 30 s with jitter, one of three lost: no flapping, no flood of events."""
        worker = GpuWorkerFactory.create()
        job = running(worker)
        events = JobEvent.objects.filter(job=job).count()

        for seconds in (35, 64, 25, 95, 5, 65):
            Worker.objects.update(last_seen_at=ago(seconds))
            rescue.sweep()
        assert JobEvent.objects.filter(job=job).count() == events

        Worker.objects.update(last_seen_at=ago(settings.OPENFACE_GPU_WORKER_STALE_SECONDS + 1))
        for _ in range(3):
            rescue.sweep()
        assert JobEvent.objects.filter(job=job).count() == events + 1
        assert Job.objects.get(pk=job.pk).state == JobState.UNAVAILABLE


class TestAwayForAMonth:
    @pytest.fixture
    def away(self) -> Worker:
        """A machine with a running Space that was not heard for 30 days."""
        worker: Worker = GpuWorkerFactory.create(name="gpu1")
        running(worker)
        UptimeFactory.create()
        Uptime.objects.update(up_since=ago(90 * 86_400))
        Worker.objects.update(last_seen_at=ago(30 * 86_400))
        rescue.sweep()
        return worker

    def test_it_is_never_deleted_and_keeps_what_it_has(self, away: Worker) -> None:
        rescue.sweep()

        assert Worker.objects.filter(pk=away.pk, revoked_at=None).exists()
        assert Job.objects.get().state == JobState.UNAVAILABLE
        assert Lease.objects.get().released_at is None
        assert Reservation.objects.filter(cleared_at=None).count() == 1

    def test_it_is_shown_as_away_with_reservations_that_are_old(self, away: Worker) -> None:
        seen = fleet()
        (line,) = seen.lines

        told = as_json(line, now=seen.now)

        assert (told["standing"], told["stale"], told["jobs"]) == ("offline", True, 1)
        assert told["silent_seconds"] > 29 * 86_400
        assert told["gpus"][0]["reserved_mib"] > 0

    def test_the_fleet_page_says_that_the_memory_stays_reserved(self, away: Worker) -> None:
        reader = Client()
        reader.force_login(UserFactory.create(is_staff=True))

        page = reader.get("/fleet/").content.decode()

        assert "Offline" in page
        assert "stays reserved until the worker is back" in page


def running(worker: Worker) -> Job:
    """A job that this worker runs."""
    job: Job = JobFactory.create(requirement=RequirementFactory.create(kind="gpu", gpu_count=1))
    claimed = must_claim(worker, key=str(job.pk))
    kinds = ["building", "starting", "running"]
    reports = [Report(seq, kind) for seq, kind in enumerate(kinds, start=1)]
    record(worker.pk, session=worker.session, job_id=job.pk, lease_id=claimed.lease.pk, reports=reports)
    return Job.objects.get(pk=job.pk)
