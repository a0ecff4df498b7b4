"""`manage.py import_space PATH OWNER/REPO`: put a directory into the local forge as a Space."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from spaces.catalogue import sync
from spaces.forge import get_forge
from spaces.forge.base import SYSTEM
from spaces.forge.errors import Conflict, ForgeError
from spaces.forge.local_writes import commit_directory, create_repository, find_repository
from spaces.models import LocalRepository, Visibility
from spaces.topics import RUNNABLE, is_runnable, plan


class Command(BaseCommand):
    help = "Create or update a repository of the local forge from a directory. Doing it twice changes nothing."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("path", metavar="PATH", type=Path, help="the directory to import")
        parser.add_argument("repository", metavar="OWNER/REPO", help="where to; the owner is a user's name")
        parser.add_argument(
            "--topics",
            help="separated by commas, for instance space,gpu,vram-12gb (default for a new repository: space)",
        )
        parser.add_argument(
            "--visibility",
            choices=[v.value for v in Visibility],
            help="who may read it (default for a new repository: private)",
        )
        parser.add_argument("--message", default="Import", help="the commit's message")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        path: Path = options["path"]
        owner, slash, name = options["repository"].partition("/")
        if not slash or not owner or not name or "/" in name:
            raise CommandError(f"{options['repository']!r} is not of the form OWNER/REPO.")
        if not path.is_dir():
            raise CommandError(f"{path} is not a directory.")
        topics = _topics(options["topics"])
        try:
            row, created = self._repository(owner, name, topics, options["visibility"])
            revision, committed = commit_directory(row, path, message=options["message"])
            space = sync(get_forge().get_repo_by_id(str(row.pk), viewer=SYSTEM))
        except ForgeError as error:
            raise CommandError(str(error)) from error
        changes = "created" if created else "updated" if committed else "unchanged"
        result = {
            "repository": f"{row.owner}/{row.name}",
            "repository_id": str(row.pk),
            "revision": revision,
            "result": changes,
            "committed": committed,
            "visibility": row.visibility,
            "topics": row.topics,
            "page": f"/spaces/{space.owner}/{space.name}/",
        }
        if options["json"]:
            self.stdout.write(json.dumps(result))
            return
        self.stdout.write(
            f"{result['repository']} {changes} at {revision[:7]} ({row.visibility}; {', '.join(row.topics)})"
        )
        for warning in plan(row.topics).warnings:
            self.stderr.write(str(warning))
        if not is_runnable(row.topics):
            self.stderr.write(f"It is not shown as a Space: it has none of the topics {', '.join(RUNNABLE)}.")

    def _repository(
        self, owner: str, name: str, topics: list[str] | None, visibility: str | None
    ) -> tuple[LocalRepository, bool]:
        """Return the repository with the wished topics and visibility, and whether it is new."""
        try:
            row = create_repository(
                owner,
                name,
                visibility=Visibility(visibility or Visibility.PRIVATE),
                topics=["space"] if topics is None else topics,
            )
            return row, True
        except Conflict:
            pass
        with transaction.atomic():
            row = LocalRepository.objects.select_for_update(no_key=True).get(pk=find_repository(owner, name).pk)
            if topics is not None:
                row.topics = topics
            if visibility is not None:
                row.visibility = visibility
            row.save(update_fields=["topics", "visibility"])
        return row, False


def _topics(text: str | None) -> list[str] | None:
    """Return the topics of the option, sorted, or None where it was not given."""
    if text is None:
        return None
    topics = sorted({topic.strip().lower() for topic in text.split(",") if topic.strip()})
    for topic in topics:
        if len(topic) > 35 or not topic.replace("-", "").isalnum() or not topic.isascii() or topic.startswith("-"):
            raise CommandError(f"{topic!r} cannot be a topic: letters, digits and '-', at most 35.")
    return topics
