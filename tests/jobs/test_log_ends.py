"""The end of an app comes after the end of its log; where it does not, the log is marked, and the rest still taken."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from jobs import logs
from jobs.errors import StaleLease
from jobs.lifecycle import LogText, Recorded, Report, record, request_stop, stop_space
from tests.factories import WorkerFactory
from tests.jobs.journeys import Journey, journey

pytestmark = pytest.mark.django_db

TEXT = "one\ntwo\n"
HALF, WHOLE = LogText("run", 0, TEXT[:4]), LogText("run", 0, TEXT)
REST = LogText("run", 4, TEXT[4:])


def send(trip: Journey, reports: Sequence[Report] = (), pieces: Sequence[LogText] = (), *, by: Any = None) -> Recorded:
    """One call of the worker, with what it has to say."""
    worker = by or trip.worker
    answer = record(
        worker.pk, session=1, job_id=trip.job.pk, lease_id=trip.lease.pk, reports=list(reports), logs=list(pieces)
    )
    trip.lease.refresh_from_db()
    return answer


def exited(trip: Journey, ends: dict[str, int] | None = None) -> Report:
    trip.lease.refresh_from_db()
    told = {} if ends is None else {"log_ends": ends}
    return Report(trip.lease.accepted_through + 1, "exited", {"code": 1, "oom_killed": False, **told})


def ended(pieces: Sequence[LogText] = (), ends: dict[str, int] | None = None) -> Journey:
    """A job that ran and ended; with its end its worker sent this much of the log, and told where it ends."""
    trip = journey("running")
    send(trip, [exited(trip, ends)], pieces)
    assert trip.state == "failed"
    return trip


def test_a_log_that_arrived_whole_is_not_marked() -> None:
    trip = ended([WHOLE], {"run": len(TEXT), "build": 0})

    assert not trip.lease.log_incomplete
    assert not logs.lacks_its_end(trip.lease, "run")


def test_a_log_whose_end_has_not_arrived_is_marked_with_the_end_of_the_app() -> None:
    trip = ended([HALF], {"run": len(TEXT)})

    assert trip.lease.log_incomplete
    assert logs.lacks_its_end(trip.lease, "run")
    assert not logs.lacks_its_end(trip.lease, "build")


def test_a_log_of_which_nothing_arrived_is_marked_too() -> None:
    assert ended([], {"run": 1}).lease.log_incomplete


def test_a_worker_that_tells_no_ends_marks_nothing() -> None:
    assert not ended([HALF]).lease.log_incomplete


def test_a_stopped_job_is_marked_as_any_other() -> None:
    trip = journey("running")
    request_stop(trip.job.pk)

    send(trip, [exited(trip, {"run": len(TEXT)})], [HALF])

    assert (trip.state, trip.lease.log_incomplete) == ("completed", True)


def test_the_rest_of_a_log_is_taken_after_the_end_and_takes_the_mark_away() -> None:
    trip = ended([HALF], {"run": len(TEXT)})
    events = trip.job.events.count()

    answer = send(trip, [], [REST])

    assert (answer.log_offsets, answer.state) == ({"run": len(TEXT)}, "failed")
    assert logs.read(trip.lease, "run").text == TEXT
    assert not trip.lease.log_incomplete
    assert trip.job.events.count() == events


def test_the_mark_stays_until_the_last_stream_is_whole() -> None:
    trip = ended([], {"run": len(TEXT), "system": 3})

    send(trip, [], [WHOLE])
    assert trip.lease.log_incomplete
    assert not logs.lacks_its_end(trip.lease, "run") and logs.lacks_its_end(trip.lease, "system")

    send(trip, [], [LogText("system", 0, "abc")])
    assert not trip.lease.log_incomplete


def test_an_end_whose_answer_was_lost_may_be_told_again_with_the_rest() -> None:
    trip = journey("running")
    end = exited(trip, {"run": len(TEXT)})
    send(trip, [end], [HALF])

    answer = send(trip, [end], [REST])

    assert (answer.accepted_through, trip.lease.log_incomplete) == (end.seq, False)
    assert trip.job.events.filter(seq=end.seq).count() == 1


def test_nothing_is_taken_beyond_the_end_that_was_told() -> None:
    trip = ended([HALF], {"run": len(TEXT), "system": 3})

    send(trip, [], [REST, LogText("run", len(TEXT), "more"), LogText("build", 0, "more")])

    assert logs.next_offsets(trip.lease) == {"run": len(TEXT)}


def test_no_further_event_is_taken_after_the_end() -> None:
    trip = ended([HALF], {"run": len(TEXT)})

    with pytest.raises(StaleLease):
        send(trip, [Report(trip.lease.accepted_through + 1, "running")], [REST])

    assert (trip.state, logs.next_offsets(trip.lease)) == ("failed", {"run": 4})


def test_once_the_log_is_whole_the_lease_is_over() -> None:
    trip = ended([WHOLE], {"run": len(TEXT)})

    with pytest.raises(StaleLease):
        send(trip, [], [LogText("run", len(TEXT), "more")])


def test_another_worker_adds_nothing_to_the_log() -> None:
    trip = ended([HALF], {"run": len(TEXT)})

    with pytest.raises(StaleLease):
        send(trip, [], [REST], by=WorkerFactory.create())


def test_a_lease_that_was_taken_away_takes_no_late_text() -> None:
    trip = journey("unavailable")
    stop_space(trip.job.space_id)  # its worker is silent: over at once, and not by its own report
    assert trip.state == "completed"

    with pytest.raises(StaleLease):
        send(trip, [], [REST])


def test_reports_that_are_no_end_cost_no_statement_more() -> None:
    trip = journey("starting")
    trip.lease.refresh_from_db()
    report = Report(trip.lease.accepted_through + 1, "running")

    with CaptureQueriesContext(connection) as captured:
        send(trip, [report], [HALF])

    said = [query["sql"] for query in captured]
    assert not [sql for sql in said if "log_incomplete" in sql.partition("WHERE")[2] or "log_ends" in sql]
