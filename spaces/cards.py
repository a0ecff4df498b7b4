"""The Space list: which Spaces a visitor sees as cards, in which state, and what stands in a card's last line."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from jobs.models import Job
from jobs.states import JobState
from spaces import words
from spaces.durations import duration, needed_memory, ordinal, rough
from spaces.models import Space
from spaces.shown import all_as_shown

PLACES_COUNTED = 100  # beyond that, a place in the line tells a person nothing

COLOURS = ("red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray")

# How the list groups states, and which glyph stands for the group.
GROUPS = {
    "running": (gettext_lazy("Running"), JobState.RUNNING.value),
    "coming": (gettext_lazy("On the way"), JobState.BUILDING.value),
    "queued": (gettext_lazy("Queued"), JobState.QUEUED.value),
    "idle": (gettext_lazy("On demand"), words.ON_DEMAND),
    "unavailable": (gettext_lazy("Unavailable"), JobState.UNAVAILABLE.value),
    "failed": (gettext_lazy("Failed"), JobState.FAILED.value),
}
_GROUP_OF = {
    JobState.QUEUED: "queued",
    JobState.LEASED: "coming",
    JobState.BUILDING: "coming",
    JobState.STARTING: "coming",
    JobState.RUNNING: "running",
    JobState.UNAVAILABLE: "unavailable",
    JobState.FAILED: "failed",
}


@dataclass(frozen=True)
class Card:
    """One Space as a card."""

    space: Space
    job: Job | None
    badge: words.Badge
    group: str
    line: str  # the one useful sentence at the bottom
    mine: bool

    @property
    def lit(self) -> bool:
        """Whether the Space's own colours shine: only while it runs."""
        return self.group == "running"

    @property
    def alert(self) -> bool:
        return self.group == "failed"

    @property
    def revision(self) -> str:
        return self.job.revision if self.job is not None and not self.job.is_final else self.space.head_revision


@dataclass(frozen=True)
class Filters:
    """What the visitor asked to see; everything empty is everything."""

    state: str = ""
    topic: str = ""
    mine: bool = False
    query: str = ""

    @property
    def any(self) -> bool:
        return bool(self.state or self.topic or self.mine or self.query)

    @property
    def query_string(self) -> str:
        """The same question again, for the list alone."""
        asked = {
            "part": "list",
            "state": self.state,
            "topic": self.topic,
            "mine": "1" if self.mine else "",
            "q": self.query,
        }
        return urlencode({key: value for key, value in asked.items() if value})

    def keep(self, card: Card) -> bool:
        """Whether a card is among what was asked for."""
        if self.state and card.group != self.state:
            return False
        if self.topic and self.topic not in card.space.topics:
            return False
        if self.mine and not card.mine:
            return False
        return all(word in _searched(card) for word in self.query.casefold().split())


def kind_of(space: Space, job: Job | None) -> str:
    """Return "gpu" or "cpu": what the newest job needed, or else what the Space's placement and topics ask for."""
    if job is not None:
        return str(job.requirement.kind)
    if space.placement in (Space.Placement.CPU, Space.Placement.GPU):
        return str(space.placement)
    return "gpu" if "gpu" in space.topics else "cpu"


def newest_jobs(spaces: Iterable[Space]) -> dict[int, Job]:
    """Return the newest job of each Space, as it is shown, by the Space's id. At most two queries."""
    jobs = (
        Job.objects.filter(space__in=[space.pk for space in spaces])
        .order_by("space_id", "-seq")
        .distinct("space_id")
        .select_related("worker", "requirement__worker")
    )
    return {job.space_id: job for job in all_as_shown(jobs)}


def cards(spaces: Sequence[Space], *, username: str) -> list[Card]:
    """Return a card for each Space, the ones with something going on first. Two queries."""
    jobs = newest_jobs(spaces)
    queued = any(job.state == JobState.QUEUED for job in jobs.values())
    places = _places() if queued else {}
    made = [_card(space, jobs.get(space.pk), places=places, username=username) for space in spaces]
    return sorted(made, key=lambda card: (card.job is None, -(card.job.seq if card.job else 0), str(card.space)))


def counts(all_cards: Sequence[Card]) -> Counter[str]:
    """Return how many cards each group has."""
    return Counter(card.group for card in all_cards)


def topics(all_cards: Sequence[Card]) -> list[tuple[str, int]]:
    """Return the topics that tell Spaces apart, most frequent first, with how many Spaces have each."""
    found = Counter(topic for card in all_cards for topic in card.space.topics)
    return [(topic, count) for topic, count in found.most_common(8) if topic != "space"]


def _places() -> dict[uuid.UUID, int]:
    """Return the place in the line of the first queued jobs."""
    waiting = Job.objects.filter(state=JobState.QUEUED).order_by("seq").values_list("id", flat=True)[:PLACES_COUNTED]
    return {job_id: place for place, job_id in enumerate(waiting, start=1)}


def _card(space: Space, job: Job | None, *, places: dict[uuid.UUID, int], username: str) -> Card:
    group = "idle" if job is None else _GROUP_OF.get(JobState(job.state), "idle")
    return Card(
        space=space,
        job=job,
        badge=words.badge(job, kind=kind_of(space, job)),
        group=group,
        line=_line(job, places=places),
        mine=bool(username) and space.owner.casefold() == username.casefold(),
    )


def _line(job: Job | None, *, places: dict[uuid.UUID, int]) -> str:
    """Return what a visitor most wants to know of a Space in its present state."""
    if job is None:
        return _("Runs when somebody starts it")
    since = (timezone.now() - job.state_since).total_seconds()
    where = job.worker.name if job.worker is not None else ""
    state = JobState(job.state)
    if state is JobState.QUEUED:
        place = places.get(job.id)
        line = _("%(place)s in line") % {"place": ordinal(place)} if place else _("In line, far back")
        if job.requirement.vram_mib:
            line = _("%(line)s · needs %(memory)s") % {
                "line": line,
                "memory": needed_memory(job.requirement.vram_mib),
            }
        return line
    if state is JobState.RUNNING:
        return _("%(worker)s · up %(time)s") % {"worker": where, "time": duration(since)}
    if state is JobState.UNAVAILABLE:
        return _("%(worker)s is not heard from, for %(time)s") % {"worker": where, "time": duration(since)}
    if state is JobState.FAILED:
        return words.reason(job.reason_code, job.reason) or _("It ended with an error")
    if state in (JobState.COMPLETED, JobState.CANCELLED):
        return _("Ended %(time)s ago") % {"time": rough(since)}
    return _("%(worker)s · for %(time)s") % {"worker": where, "time": duration(since)}


def _searched(card: Card) -> str:
    space = card.space
    parts = [space.title, space.owner, space.name, space.short_description, space.head_revision, *space.topics]
    return " ".join(parts).casefold()
