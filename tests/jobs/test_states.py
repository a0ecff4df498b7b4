"""The table of moves: every pair of state and event, and what the sets of states mean."""

from __future__ import annotations

import pytest

from jobs.errors import IllegalTransition
from jobs.states import ACTIVE, COMING, FINAL, SERVING, TABLE, Event, JobState, move

PAIRS = [(state, event) for state in JobState for event in Event]


@pytest.mark.parametrize(("state", "event"), PAIRS, ids=[f"{s}-{e}" for s, e in PAIRS])
def test_every_pair_moves_as_the_table_says_or_is_refused(state: JobState, event: Event) -> None:
    if (state, event) in TABLE:
        assert move(state, event, ever_ran=True) in JobState
    else:
        with pytest.raises(IllegalTransition):
            move(state, event, ever_ran=True)


def test_every_state_can_be_reached_from_queued() -> None:
    reached = {JobState.QUEUED}
    while True:
        more = {
            move(state, event, ever_ran=ran) for (state, event) in TABLE if state in reached for ran in (True, False)
        } - reached
        if not more:
            break
        reached |= more
    assert reached == set(JobState)


def test_nothing_leaves_a_final_state() -> None:
    assert {JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED} == FINAL
    assert not [state for state, _ in TABLE if state in FINAL]


def test_every_active_state_can_be_stopped() -> None:
    for state in ACTIVE - {JobState.STOPPING}:
        assert move(state, Event.STOP, ever_ran=False) in {JobState.STOPPING, JobState.CANCELLED}


def test_a_stopping_job_never_runs_again() -> None:
    results = {
        move(JobState.STOPPING, event, ever_ran=ran)
        for (s, event) in TABLE
        if s is JobState.STOPPING
        for ran in (False, True)
    }
    assert results == {JobState.COMPLETED, JobState.CANCELLED}


def test_a_stopped_job_is_completed_if_it_ever_ran_and_cancelled_otherwise() -> None:
    assert move(JobState.STOPPING, Event.STOPPED, ever_ran=True) is JobState.COMPLETED
    assert move(JobState.STOPPING, Event.STOPPED, ever_ran=False) is JobState.CANCELLED
    assert move(JobState.BUILDING, Event.STOP_UNREACHABLE, ever_ran=False) is JobState.CANCELLED
    for event in (Event.STOP, Event.STOP_UNREACHABLE):
        assert move(JobState.QUEUED, event, ever_ran=True) is JobState.COMPLETED
        assert move(JobState.QUEUED, event, ever_ran=False) is JobState.CANCELLED


def test_only_running_is_shown_as_running_and_silence_ends_that() -> None:
    assert move(JobState.RUNNING, Event.SILENT, ever_ran=True) is JobState.UNAVAILABLE
    assert frozenset({JobState.RUNNING, JobState.UNAVAILABLE}) == SERVING
    assert not COMING & SERVING
