"""manage.py jobs: what there is to run and what runs, a line per job."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs import queue
from jobs.clock import database_now
from jobs.models import Job
from jobs.states import JobState


class Command(BaseCommand):
    help = "List jobs, newest first: those that are not over yet, or those of the states asked for."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--space", metavar="OWNER/REPO", help="of this Space only, over or not")
        parser.add_argument(
            "--state", action="append", metavar="STATE", help="in this state; may be given several times"
        )
        parser.add_argument("--worker", metavar="NAME", help="at this worker only")
        parser.add_argument("--limit", type=int, default=100, help="jobs to show (default 100)")
        parser.add_argument("--json", action="store_true", help="print one JSON object per line")

    def handle(self, *args: Any, **options: Any) -> None:
        states = options["state"] or []
        unknown = sorted(set(states) - set(JobState))
        if unknown:
            raise CommandError(f"There is no state {', '.join(unknown)}. There are: {', '.join(JobState)}.")
        if options["limit"] < 1:
            raise CommandError("--limit is at least 1.")
        jobs = Job.objects.select_related("requirement__worker", "worker").order_by("-seq")
        if options["space"]:
            owner, slash, repo = options["space"].partition("/")
            if not slash:
                raise CommandError(f"{options['space']!r} is not of the form OWNER/REPO.")
            jobs = jobs.filter(owner__iexact=owner, repo__iexact=repo)
        if options["worker"]:
            jobs = jobs.filter(worker__name__iexact=options["worker"])
        if states:
            jobs = jobs.filter(state__in=states)
        elif not options["space"]:
            jobs = jobs.active()
        now = database_now()
        for job in jobs[: options["limit"]]:
            found = {
                **queue.job_as_json(job, now=now),
                "finished_at": job.finished_at and job.finished_at.isoformat(),
                "reason_code": job.reason_code,
                "reason": job.reason,
            }
            self.stdout.write(json.dumps(found) if options["json"] else _sentence(job, found))


def _sentence(job: Job, found: dict[str, Any]) -> str:
    where = f" on {found['worker']}" if found["worker"] else ""
    reason = f"  {job.reason}" if job.reason else ""
    state = f"{job.state}{where} for {int(found['seconds_in_state'])} s"
    return f"{job.pk}  {found['space']}@{job.revision[:7]}  {state}  needs {queue.needs(job.requirement)}{reason}"
