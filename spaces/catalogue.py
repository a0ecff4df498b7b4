"""The Space rows: one for each repository that can be run, kept like the forge by looking.

Owner, name, visibility and topics are compared at each look. What costs a read of the repository (its head and README)
is read again when the row is older than a few seconds. Nobody has to tell us that something was pushed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache

import psycopg
from django.db import IntegrityError, InterfaceError, OperationalError, transaction
from django.utils import timezone

from jobs import notices
from spaces import front_matter
from spaces.advice import Advice
from spaces.forge import get_forge
from spaces.forge.base import Commit, Repository, Viewer
from spaces.forge.errors import EmptyRepository, ForgeError, NotFound, TooLarge
from spaces.models import Space
from spaces.topics import RUNNABLE

logger = logging.getLogger(__name__)

FRESH = timedelta(seconds=5)  # one Space: a page that polls reads the repository this often
LIST_FRESH = timedelta(seconds=60)  # cards may be a little older
LIST_REFRESHES = 20  # reads of repositories that one look at the list may cost (about 15 ms each)
# What is no fault of any row: the database is away. The last one is the pool's.
AWAY = (OperationalError, InterfaceError, psycopg.OperationalError)


def readable_repositories(viewer: Viewer) -> list[Repository]:
    """Return every repository that can be run and that the viewer may read, by owner and name."""
    forge = get_forge()
    found = {repo.id: repo for topic in RUNNABLE for repo in forge.search(topic, viewer=viewer)}
    return sorted(found.values(), key=lambda repo: (repo.owner.lower(), repo.name.lower()))


def row_for(repo: Repository) -> Space:
    """Return the repository's row, fresh to the few seconds."""
    space = _row_with_facts(repo, Space.objects.filter(repository_id=repo.id).first())
    if _is_stale(space, FRESH):
        _refresh(space, repo)
    return space


def rows_for(repositories: Iterable[Repository]) -> list[Space]:
    """Return the rows of these repositories in the same order. Only the stalest few are read again.

    A repository whose row cannot be made is left out: nobody's repository may cost the others' page.
    """
    repositories = list(repositories)
    rows = {row.repository_id: row for row in Space.objects.filter(repository_id__in=[r.id for r in repositories])}
    pairs: list[tuple[Repository, Space]] = []
    for repo in repositories:
        with _alone(repo):
            pairs.append((repo, _row_with_facts(repo, rows.get(repo.id))))
    never = timezone.now() - timedelta(days=365_000)
    stale = sorted(
        (pair for pair in pairs if _is_stale(pair[1], LIST_FRESH)), key=lambda pair: pair[1].synced_at or never
    )
    for repo, space in stale[:LIST_REFRESHES]:
        _refresh(space, repo)
    return [space for _, space in pairs]


def sync(repo: Repository) -> Space:
    """Make the repository's row as it is on the forge at this moment, and return it."""
    space = _row_with_facts(repo, Space.objects.filter(repository_id=repo.id).first())
    _refresh(space, repo)
    return space


def row_at(repo: Repository, commit: Commit, front: front_matter.FrontMatter) -> Space:
    """Return the repository's row with the head that the caller has just read; nothing is read twice."""
    space = _row_with_facts(repo, Space.objects.filter(repository_id=repo.id).first())
    if space.head_revision != commit.sha or _is_stale(space, FRESH):
        _remember(space, front, commit)
    return space


@lru_cache(maxsize=512)  # a commit never changes; what could not be read at this moment is an error, and not kept
def read_front_matter(repo: Repository, revision: str) -> front_matter.FrontMatter:
    """Read README.md at a commit; an empty one where there is none, or where it is absurdly large."""
    forge = get_forge()
    try:
        return front_matter.parse(forge.read_file(repo, revision, "README.md", limit=front_matter.README_LIMIT))
    except TooLarge:
        limit = {"limit_kib": front_matter.README_LIMIT // 1024}
        return front_matter.FrontMatter(warnings=(Advice("readme_too_large", limit),))
    except NotFound:
        return front_matter.FrontMatter()


@contextmanager
def _alone(repo: Repository) -> Iterator[None]:
    """Keep what goes wrong with one repository from the others and from its own page: it is written down instead."""
    try:
        yield
    except AWAY:
        raise
    except Exception:
        logger.exception("repository %s failed", repo.id, extra={"action": "space_failed", "repository": repo.id})


def _is_stale(space: Space, age: timedelta) -> bool:
    return space.synced_at is None or timezone.now() - space.synced_at > age


def _row_with_facts(repo: Repository, space: Space | None) -> Space:
    """Return the row with the forge's owner, name, visibility and topics; create or mend it where it differs."""
    facts = {
        "owner": repo.owner,
        "name": repo.name,
        "visibility": repo.visibility.value,
        "topics": list(repo.topics),
    }
    if space is not None and all(getattr(space, key) == value for key, value in facts.items()):
        return space
    for _ in range(2):
        try:
            with transaction.atomic():
                _make_room(repo)
                seen, _created = Space.objects.update_or_create(repository_id=repo.id, defaults=facts)
                if space is not None and space.visibility != seen.visibility:
                    notices.publish("access", space=seen.pk)  # who has it open may have lost the right
                return seen
        except IntegrityError:  # another process created the same row or took the same name just now
            continue
    return Space.objects.get(repository_id=repo.id)


def _make_room(repo: Repository) -> None:
    """Move another row that still has this name aside: its repository was renamed, or deleted and made anew.

    It keeps its jobs and history. No repository has a name with '~', so the row gets its true name at its next look.
    """
    for other in Space.objects.filter(owner__iexact=repo.owner, name__iexact=repo.name).exclude(repository_id=repo.id):
        other.name = f"{other.name}~{other.repository_id}"
        other.synced_at = None
        other.save(update_fields=["name", "synced_at"])


def _refresh(space: Space, repo: Repository) -> None:
    """Read head and README into the row. What fails leaves the row as it was, to be asked again in its turn."""
    with _alone(repo):
        _read(space, repo)
        return
    space.synced_at = timezone.now()
    space.save(update_fields=["synced_at"])


def _read(space: Space, repo: Repository) -> None:
    """Read head and README into the row. A forge that does not answer leaves the row as it was, to be asked again."""
    try:
        commit: Commit | None = get_forge().head(repo)
    except EmptyRepository:
        commit = None
    except ForgeError as error:
        logger.warning("repository not read: %s", error, extra={"action": "space_not_read", "repository": repo.id})
        return
    if commit is not None and space.head_revision == commit.sha and space.head_at is not None:
        space.synced_at = timezone.now()
        space.save(update_fields=["synced_at"])
        return
    try:
        front = read_front_matter(repo, commit.sha) if commit else front_matter.FrontMatter()
    except ForgeError as error:
        logger.warning("README not read: %s", error, extra={"action": "space_not_read", "repository": repo.id})
        return
    _remember(space, front, commit)


def _remember(space: Space, front: front_matter.FrontMatter, commit: Commit | None) -> None:
    read = {
        "head_revision": commit.sha if commit else "",
        "head_at": commit.committed_at if commit else None,
        "title": front.title,
        "emoji": front.emoji,
        "color_from": front.color_from,
        "color_to": front.color_to,
        "short_description": front.short_description,
        "sdk": front.sdk or "",
        "synced_at": timezone.now(),
    }
    for key, value in read.items():
        setattr(space, key, value)
    with transaction.atomic():  # a value that the table refuses must not spoil the caller's transaction
        space.save(update_fields=list(read))
