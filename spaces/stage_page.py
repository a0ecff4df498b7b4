"""What the App tab draws: gathers the facts of the present state, for one visitor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.utils.translation import gettext as _

from jobs import line, logs
from jobs.clock import database_now
from jobs.delivery import Delivery, delivery
from jobs.line import COUNTED_PLACES
from jobs.models import Job, LogChunk
from jobs.states import JobState
from jobs.waiting import why_waiting
from spaces import advice, ailment, build_steps, log_lines, results, stage, topics, why, words
from spaces.access import visible_spaces
from spaces.durations import file_size, ordinal
from spaces.space_page import Person, SpacePage, newest_lease
from spaces.why import Reader

STEPS_READ_BYTES = 1024 * 1024  # of the build log, for its steps
EXCERPT_BYTES = 16 * 1024
EXCERPT_LINES = 24
LINE_SHOWN = 8  # places of the queue that are drawn


@dataclass(frozen=True)
class Place:
    """One place in the line."""

    number: int
    name: str
    needs: str
    seconds: float
    current: bool


def stage_context(page: SpacePage, user: Person) -> dict[str, Any]:
    """Return what `spaces/_stage.html` reads for the Space's present state."""
    job = page.job
    empty: dict[str, Any] = {"why": [], "never": [], "place": None, "key": page.key, "warnings": _warnings(page)}
    if job is None:
        return {**empty, "stage": "idle"}
    state = JobState(job.state)
    if state is JobState.RUNNING:
        if job.mode == Job.Mode.BATCH:  # it computes and ends: there is no app to frame
            return {**empty, "stage": "computing", **_on_the_way(job, steps=[]), **_excerpts(job)}
        return {**empty, "stage": "running", "ailment": ailment.of(job)}
    if state in (JobState.COMPLETED, JobState.CANCELLED):
        done = state is JobState.COMPLETED and words.completes(job)
        told = "" if job.reason_code == "stopped" else words.reason(job.reason_code, job.reason)
        lines = _excerpt(job, "run") if job.mode == Job.Mode.BATCH else []
        return {
            **empty,
            "stage": "idle",
            "done": done,
            "reason": told,
            "excerpt": lines,
            "results": _results(page, job),
        }
    if state is JobState.FAILED:
        return {**empty, "stage": "failed", **_failure(job), "results": _results(page, job)}
    if state is JobState.QUEUED:
        return {**empty, "stage": "waiting", **_on_the_way(job, steps=[]), **_waiting(page, job, user)}
    if state in (JobState.STOPPING, JobState.UNAVAILABLE):
        return {**empty, "stage": state.value, **_on_the_way(job, steps=[]), **_excerpts(job)}
    steps = _steps(job)
    return {**empty, "stage": "coming", **_on_the_way(job, steps=steps), **_excerpts(job), "build_steps": steps}


def _warnings(page: SpacePage) -> list[str]:
    """Return what the owner should know about the topics and the README: of this run, or else of the next one."""
    if not page.may_write:
        return []
    if page.job is None or page.job.is_final:
        return [str(warning) for warning in topics.plan(page.space.topics).warnings]
    return [advice.worded(stored) for stored in page.job.spec.get("warnings", [])]


def _results(page: SpacePage, job: Job) -> results.Shown | None:
    """Return what a batch job left, or None."""
    if job.mode != Job.Mode.BATCH:
        return None
    return results.of(page.space, job, limit=results.FILES_ON_THE_STAGE)


def _on_the_way(job: Job, *, steps: list[build_steps.Step]) -> dict[str, Any]:
    now = database_now()
    last = stage.last_time(job)
    bringing = delivery(job)
    return {
        "headline": stage.headline(job, place="", step=build_steps.current(steps), bringing=bringing),
        "reason": words.reason(job.reason_code, job.reason),
        "port": job.spec.get("app_port") if job.state == JobState.STARTING else None,
        "figures": stage.figures(job, now=now, last=last, bringing=bringing),
        "path": stage.path(job, now=now, last=last, bringing=bringing),
        "arrived": _arrived(bringing) if bringing is not None else "",
    }


def _arrived(bringing: Delivery) -> str:
    if not bringing.files:  # its worker did not say
        return str(words.REASONS["delivering"])
    return _("It has ended. %(here)d of %(all)d files are here, %(size_here)s of %(size)s.") % {
        "here": bringing.files_here,
        "all": bringing.files,
        "size_here": file_size(bringing.size_here),
        "size": file_size(bringing.size),
    }


def _waiting(page: SpacePage, job: Job, user: Person) -> dict[str, Any]:
    waiting = why_waiting(job)
    if waiting is None:  # it was taken this very moment; the next look shows that
        return {}
    seen = visible_spaces(user)
    reader = Reader(spaces={str(space) for space in seen}, operator=bool(getattr(user, "is_staff", False)))
    rows = why.rows(waiting, reader=reader, now=database_now(), gpu_count=job.requirement.gpu_count)
    place = ""
    if waiting.place_capped:
        place = _("After the first %(number)d") % {"number": COUNTED_PLACES}
    elif waiting.place is not None:
        place = ordinal(waiting.place)
    return {
        "headline": stage.headline(job, place=place, step=None),
        "code": waiting.code,
        "explanation": words.waiting(waiting.code),
        "needs": words.needs_of(job.requirement),
        "place": waiting.place,
        "place_capped": waiting.place_capped,
        "all_rows": rows,
        "why": [row for row in rows if not row.never],
        "never": why.without_unnamed([row for row in rows if row.never]),
        "no_worker": waiting.code == "no_worker",
        "line": _line(job, seen={space.pk for space in seen}, place=waiting.place),
    }


def _line(job: Job, *, seen: set[int], place: int | None) -> list[Place]:
    """Return the head of the line, and this job's own place; Spaces that the reader may not see have no name."""
    now = database_now()
    head = line.jobs_in_order(line.head(LINE_SHOWN))
    numbered = list(enumerate(head, start=1))
    if place is not None and place > len(head):
        numbered = [*numbered[:-1], (place, job)]
    return [
        Place(
            number=number,
            name=_("This Space") if one.pk == job.pk else _line_name(one, seen),
            needs=words.needs_of(one.requirement),
            seconds=(now - one.queued_at).total_seconds(),
            current=one.pk == job.pk,
        )
        for number, one in numbered
    ]


def _line_name(job: Job, seen: set[int]) -> str:
    return f"{job.owner}/{job.repo}" if job.space_id in seen else _("A Space you cannot see")


def _steps(job: Job) -> list[build_steps.Step]:
    lease = newest_lease(job)
    if lease is None:
        return []
    return build_steps.read_steps(logs.read(lease, LogChunk.Stream.BUILD, limit_bytes=STEPS_READ_BYTES).text)


def _failure(job: Job) -> dict[str, Any]:
    """Return the failing step and the lines that look like the cause, first."""
    steps = _steps(job)
    failed = build_steps.current(steps)
    failed = failed if failed is not None and failed.standing == "failed" else None
    ran = job.first_ran_at is not None
    built = job.build_ended_at is not None
    streams = ("run", "build", "system") if ran or built else ("build", "run", "system")
    for stream in streams:
        lines = _excerpt(job, stream, prefix=f"#{failed.vertex} " if failed is not None and stream == "build" else "")
        if lines:
            break
    return {
        "headline": stage.failure_headline(job, step=failed),
        "reason": words.reason(job.reason_code, job.reason),
        "failed_step": failed,
        "excerpt": lines,
        "excerpt_stream": stream,
        "remedy": words.remedy(f"batch_{job.reason_code}" if _ended_badly(job) else job.reason_code),
    }


def _ended_badly(job: Job) -> bool:
    """Whether a batch job computed to its end, which was none that succeeds."""
    return job.mode == Job.Mode.BATCH and job.reason_code == "exited"


def _excerpts(job: Job) -> dict[str, Any]:
    """Return the end of the log that tells most about the present state."""
    streams = {
        JobState.LEASED: ("system", "build"),
        JobState.BUILDING: ("build", "system"),
        JobState.STARTING: ("run", "build", "system"),
    }.get(JobState(job.state), ("run", "system"))
    for stream in streams:
        lines = _excerpt(job, stream)
        if lines:
            return {"excerpt": lines, "excerpt_stream": stream}
    return {"excerpt": [], "excerpt_stream": streams[0]}


def _excerpt(job: Job, stream: str, *, prefix: str = "") -> list[log_lines.Line]:
    """Return the last lines of a stream of the job's newest attempt, of those with a prefix where one is given."""
    lease = newest_lease(job)
    if lease is None:
        return []
    begin = logs.tail_offset(lease, stream, limit_bytes=EXCERPT_BYTES)
    text = logs.read(lease, stream, after=begin, limit_bytes=2 * EXCERPT_BYTES).text
    complete, rest = log_lines.split(text)
    raw = [*complete, rest] if rest else complete
    raw = [line for line in raw if line.startswith(prefix)]
    return [log_lines.render(line) for line in raw[-EXCERPT_LINES:]]
