"""The page about states tells the table that decides."""

from __future__ import annotations

import re
from pathlib import Path

from jobs.states import TABLE, Event, JobState

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "states.md").read_text()


def test_the_moves_on_the_page_are_the_moves_of_the_table() -> None:
    told = {}
    for state, events, to in re.findall(r"^\| `(\w+)` \| ((?:`\w+`(?:, )?)+) \| `(\w+)` \|$", PAGE, re.MULTILINE):
        for event in re.findall(r"`(\w+)`", events):
            told[JobState(state), Event(event)] = JobState(to)
    assert told == TABLE


def test_every_event_is_explained() -> None:
    explained = set(re.findall(r"`(\w+)`", PAGE.split("| event | who says so |")[1].split("## ")[0]))
    assert {event.value for event in Event} <= explained
