"""manage.py placement: where a Space may run. Shows it, or sets it and says what that does."""

from __future__ import annotations

import json
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from spaces import placement
from spaces.access import any_space
from spaces.forge.errors import ForgeError
from spaces.models import Space
from spaces.placement import Placed, PlacementRefused, Wish
from spaces.placement_preview import Preview, preview


class Command(BaseCommand):
    help = "Show where a Space may run, or set it: automatic, cpu, gpu, or worker NAME. Audited."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("space", metavar="OWNER/REPO")
        parser.add_argument("placement", nargs="?", metavar="automatic|cpu|gpu|worker", help="nothing: only show it")
        parser.add_argument("worker", nargs="?", metavar="NAME", help="after the word worker")
        parser.add_argument("--preview", action="store_true", help="say what it would do, and set nothing")
        parser.add_argument("--reason", default="", help="why; shown in the Space's history and kept in the audit")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        owner, slash, name = options["space"].partition("/")
        if not slash:
            raise CommandError(f"{options['space']!r} is not of the form OWNER/REPO.")
        done: Placed | None = None
        try:
            space = any_space(owner, name)
            wish = Wish.of(space)
            if options["placement"]:
                wish = placement.wish(options["placement"], options["worker"])
                if not options["preview"]:
                    done = placement.place(space.pk, wish, actor=None, reason=options["reason"].strip())
                    space = done.space
        except (ForgeError, PlacementRefused) as error:
            raise CommandError(str(error)) from None
        judged = preview(space, wish)
        if options["json"]:
            self.stdout.write(json.dumps(_as_json(space, judged, done)))
        else:
            self._tell(space, judged, done)

    def _tell(self, space: Space, judged: Preview, done: Placed | None) -> None:
        self.stdout.write(f"{space}: {judged.title}. Needs {judged.needs}. {judged.outlook}")
        if done is not None:
            self.stdout.write(_told(done))
        else:
            for effect in judged.effects:
                self.stdout.write(effect)
        for row in judged.rows:
            where = f"{row.worker} / {row.gpu}" if row.gpu else row.worker
            self.stdout.write(f"  {where}: {row.sentence}")


def _told(done: Placed) -> str:
    if not done.changed:
        return "It was placed like that already."
    said = ["Set."]
    if done.moved:
        said.append("The run in line has the new needs and kept its place.")
    if done.stays is not None:
        said.append("What runs now goes on where it is, until somebody restarts it.")
    return " ".join(said)


def _as_json(space: Space, judged: Preview, done: Placed | None) -> dict[str, Any]:
    return {
        "space": str(space),
        **judged.as_json(),
        "changed": done is not None and done.changed,
        "moved": [str(job.pk) for job in done.moved] if done is not None else [],
    }
