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

from jobs import lifecycle
from jobs.delivery import Delivery, deliveries
from jobs.line import COUNTED_PLACES
from jobs.models import Job
from jobs.states import JobState
from jobs.waiting import Waiting, look
from spaces import ailment, delivering, words
from spaces.ailment import Ailment
from spaces.durations import duration, ordinal, rough
from spaces.models import Space
from spaces.placement import requirement_of
from spaces.shown import all_as_shown

# Classes of needs × workers that one look at the list may judge, each some 40 µs.
JUDGEMENTS_MAX = 5_000

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
    warns: bool = False  # it runs, and the line says what is wrong with it

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
class News:
    """What is known of jobs beside their rows, by their ids: read for all cards at once."""

    waiting: dict[uuid.UUID, Waiting]
    delivering: dict[uuid.UUID, Delivery]
    ailing: dict[uuid.UUID, Ailment]


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
    return requirement_of(space).kind


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
    """Return a card for each Space, the ones with something going on first. A fixed number of queries."""
    jobs = newest_jobs(spaces)
    news = News(_waiting(jobs.values()), deliveries(jobs.values()), ailment.of_all(jobs.values()))
    made = [_card(space, jobs.get(space.pk), news=news, username=username) for space in spaces]
    return sorted(made, key=lambda card: (card.job is None, -(card.job.seq if card.job else 0), str(card.space)))


def _waiting(jobs: Iterable[Job]) -> dict[uuid.UUID, Waiting]:
    """Return why those of the jobs that wait do. Where that is too much work for a list, only the place is told."""
    queued = [job for job in jobs if job.state == JobState.QUEUED]
    if not queued:
        return {}
    seen = look(named=[job.requirement.worker_id for job in queued])
    classes = {(job.requirement_id, job.mode) for job in queued}
    too_many = len(classes) * len(seen.offers) > JUDGEMENTS_MAX
    found = {}
    for job in queued:
        if too_many and lifecycle.waits_in_line(job) and job.blocked_by_id is None:
            found[job.pk] = Waiting("", "", seen.places.get(job.pk, COUNTED_PLACES + 1))
        elif (why := seen.why(job)) is not None:
            found[job.pk] = why
    return found


def counts(all_cards: Sequence[Card]) -> Counter[str]:
    """Return how many cards each group has."""
    return Counter(card.group for card in all_cards)


def topics(all_cards: Sequence[Card]) -> list[tuple[str, int]]:
    """Return the topics that tell Spaces apart, most frequent first, with how many Spaces have each."""
    found = Counter(topic for card in all_cards for topic in card.space.topics)
    return [(topic, count) for topic, count in found.most_common(8) if topic != "space"]


def _card(space: Space, job: Job | None, *, news: News, username: str) -> Card:
    group = "idle" if job is None else _GROUP_OF.get(JobState(job.state), "idle")
    return Card(
        space=space,
        job=job,
        badge=words.badge(job, kind=kind_of(space, job)),
        group=group,
        line=_line(job, news=news),
        warns=job is not None and job.id in news.ailing,
        mine=bool(username) and space.owner.casefold() == username.casefold(),
    )


def _line(job: Job | None, *, news: News) -> str:
    """Return what a visitor most wants to know of a Space in its present state."""
    if job is None:
        return _("Runs when somebody starts it")
    since = (timezone.now() - job.state_since).total_seconds()
    where = job.worker.name if job.worker is not None else ""
    state = JobState(job.state)
    if state is JobState.QUEUED:
        return _waiting_line(job, news.waiting.get(job.id))
    if job.id in news.delivering and state is not JobState.UNAVAILABLE:
        return delivering.on_a_card(news.delivering[job.id])
    if job.id in news.ailing:
        return news.ailing[job.id].sentence
    if state is JobState.RUNNING:
        return _("%(worker)s · up %(time)s") % {"worker": where, "time": duration(since)}
    if state is JobState.UNAVAILABLE:
        return _("%(worker)s is not heard from, for %(time)s") % {"worker": where, "time": duration(since)}
    if state is JobState.FAILED:
        return words.reason(job.reason_code, job.reason) or _("It ended with an error")
    if state in (JobState.COMPLETED, JobState.CANCELLED):
        return _("Ended %(time)s ago") % {"time": rough(since)}
    return _("%(worker)s · for %(time)s") % {"worker": where, "time": duration(since)}


def _waiting_line(job: Job, waiting: Waiting | None) -> str:
    """Return the place and the reason, in few words that name no Space and no process."""
    if waiting is None:
        return _("Waiting in line")
    said = []
    if waiting.place is not None:
        far = _("In line, far back")
        said.append(
            far if waiting.place > COUNTED_PLACES else _("%(place)s in line") % {"place": ordinal(waiting.place)}
        )
    nearest = waiting.workers[0].name if waiting.workers else ""
    said.append(words.waiting_short(waiting.code, worker=nearest, needed_mib=job.requirement.vram_mib))
    return " · ".join(filter(None, said))


def _searched(card: Card) -> str:
    space = card.space
    parts = [space.title, space.owner, space.name, space.short_description, space.head_revision, *space.topics]
    return " ".join(parts).casefold()
