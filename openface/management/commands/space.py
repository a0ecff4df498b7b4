"""`manage.py space …`: start, stop and list Spaces from a shell, for operators and for our own demo."""

from __future__ import annotations

import json
import time
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core.management.base import BaseCommand, CommandError, CommandParser

from jobs.models import Job
from jobs.states import ACTIVE
from spaces import launch
from spaces.access import get_space, visible_spaces
from spaces.forge.errors import ForgeError
from spaces.models import Space

_LOOK_SECONDS = 0.2


class Command(BaseCommand):
    help = "Start, stop and list Spaces."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--as", dest="user", metavar="USER", help="whose act it is (default: the first superuser)")
        acts = parser.add_subparsers(dest="act", required=True, metavar="start|stop|list")
        start = acts.add_parser("start", help="queue the newest commit")
        start.add_argument("space", metavar="OWNER/REPO")
        start.add_argument("--restart", action="store_true", help="replace a job that is active")
        stop = acts.add_parser("stop", help="stop what is active")
        stop.add_argument("space", metavar="OWNER/REPO", nargs="?")
        stop.add_argument("--all", action="store_true", help="of all Spaces")
        stop.add_argument("--wait", type=float, default=0, metavar="SECONDS", help="until it has stopped")
        acts.add_parser("list", help="all Spaces and the state of their newest job, one JSON object a line")

    def handle(self, *args: Any, **options: Any) -> None:
        user = _person(options["user"])
        try:
            match options["act"]:
                case "start":
                    job = launch.start(_space(options["space"], user), user=user, replace=options["restart"])
                    self.stdout.write(json.dumps(_described(job)))
                case "stop":
                    self._stop(user, options)
                case "list":
                    for space in visible_spaces(user):
                        newest = Job.objects.filter(space=space).order_by("-seq").first()
                        state = _described(newest) if newest else {"job": None, "state": None}
                        self.stdout.write(json.dumps({"space": f"{space.owner}/{space.name}", **state}))
        except ForgeError as error:
            raise CommandError(str(error)) from error

    def _stop(self, user: AbstractBaseUser, options: dict[str, Any]) -> None:
        if bool(options["space"]) == options["all"]:
            raise CommandError("Name a Space, or say --all.")
        active = Space.objects.filter(jobs__state__in=ACTIVE).distinct()
        spaces = list(active) if options["all"] else [_space(options["space"], user)]
        for space in spaces:
            launch.stop(space, user=user)
        deadline = time.monotonic() + options["wait"]
        while options["wait"] and (left := list(_still_active(spaces))):
            if time.monotonic() > deadline:
                raise CommandError(f"Not stopped after {options['wait']:g} s: {', '.join(left)}.")
            time.sleep(_LOOK_SECONDS)


def _person(name: str | None) -> AbstractBaseUser:
    users = get_user_model().objects.filter(is_active=True)
    chosen = users.filter(username=name) if name else users.filter(is_superuser=True).order_by("pk")
    user = chosen.first()
    if user is None:
        raise CommandError(f"There is no user {name}." if name else "There is no superuser; say --as USER.")
    return user


def _space(name: str, user: AbstractBaseUser) -> Space:
    owner, slash, repo = name.partition("/")
    if not slash:
        raise CommandError(f"{name!r} is not of the form OWNER/REPO.")
    return get_space(user, owner, repo)


def _still_active(spaces: list[Space]) -> list[str]:
    jobs = Job.objects.filter(space__in=spaces, state__in=ACTIVE).select_related("space")
    return sorted(f"{job.owner}/{job.repo} ({job.state})" for job in jobs)


def _described(job: Job) -> dict[str, str]:
    return {"job": str(job.pk), "state": str(job.state), "revision": job.revision}
