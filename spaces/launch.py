"""Start and stop of a Space: from a person's wish to a job that is pinned to one commit, and back.

What the job is told is decided here, once, and travels in `Job.spec`; a later push or a changed setting touches only
later jobs. The keys of the spec:

    sdk, app_file       from the README; null where it does not say
    sdk_version, python_version  likewise; they count where there is no Dockerfile
    app_port            where the app listens inside its container
    startup_timeout_s   how long the port may take to answer; null: the worker's own limit
    environment         public variables (`environment.py`)
    prefix              "strip", "keep" or "detect": what the data plane does with /run/{owner}/{repo}
    found_prefix        "strip" or "keep": what the app was found to want when it began to answer; not there before
    limits              run_timeout_s: how long a batch job may compute; null: without end
    rewrite_host        whether Host and Origin are sent as localhost
    warnings            advice for the owner about topics and README, as codes with figures (`advice.py`)
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.http import HttpRequest
from django.utils.translation import gettext as _

from jobs import audit, lifecycle
from jobs.models import Job
from spaces import topics
from spaces.advice import Advice
from spaces.catalogue import read_front_matter, row_at
from spaces.environment import app_environment
from spaces.forge import get_forge
from spaces.forge.base import Permission, Repository
from spaces.forge.errors import Forbidden
from spaces.front_matter import FrontMatter
from spaces.models import Space
from spaces.placement import placed

Person = AbstractBaseUser | AnonymousUser

DEFAULT_PORT = 7860  # Hugging Face's


def start(space: Space, *, user: Person, replace: bool = False, request: HttpRequest | None = None) -> Job:
    """Queue a job for the newest commit and return it; an active one is returned as it is unless `replace`.

    Raises the forge's errors: NotFound (not yours to see), Forbidden (you may look, not start), EmptyRepository.
    """
    repo = _repository_to_write(space, user)
    commit = get_forge().head(repo)
    front = read_front_matter(repo, commit.sha)
    plan = topics.plan(repo.topics)
    # The row as it is now, whatever the caller had read: name and settings decide below.
    space = row_at(repo, commit, front)
    with transaction.atomic():
        # Locked before the placement is read: who changes it at this moment finds this job in the line, or we his wish.
        space = Space.objects.select_for_update(no_key=True).get(pk=space.pk)
        submission = lifecycle.Submission(
            space_id=space.pk,
            repository_id=repo.id,
            owner=repo.owner,
            repo=repo.name,
            revision=commit.sha,
            requirement=placed(plan.requirement, space.placement, space.placement_worker_id),
            kind=plan.kind,
            mode=plan.mode,
            spec=_spec(space, front, plan.warnings),
        )
        job = lifecycle.submit(submission, actor=user, replace=replace)
        audit.record(
            "space_restart" if replace else "space_start",
            obj=space,
            actor=user,
            request=request,
            after={"job": str(job.pk), "revision": job.revision},
        )
    return job


def stop(space: Space, *, user: Person, request: HttpRequest | None = None) -> Job | None:
    """Ask for the Space's active jobs to be stopped; return the newest of them, None where nothing was active.

    Raises NotFound and Forbidden as `start` does. Stopping twice is stopping once.
    """
    _repository_to_write(space, user)
    with transaction.atomic():
        jobs = lifecycle.stop_space(space.pk, actor=user)
        if jobs:
            after = {"jobs": [str(job.pk) for job in jobs]}
            audit.record("space_stop", obj=space, actor=user, request=request, after=after)
    return max(jobs, key=lambda job: job.seq, default=None)


def _repository_to_write(space: Space, user: Person) -> Repository:
    """Return the Space's repository if `user` has write permission on it; NotFound and Forbidden otherwise."""
    forge = get_forge()
    repo = forge.get_repo_by_id(space.repository_id, viewer=forge.identity(user))
    if repo.permission < Permission.WRITE:
        raise Forbidden(
            _("You may look at %(space)s, but starting and stopping it needs write permission on its repository.")
            % {"space": repo.full_name}
        )
    return repo


def _run_timeout(front: FrontMatter) -> int | None:
    """Return how many seconds a batch job may compute: the operator's limit, or less where the README asks for less."""
    given = [limit for limit in (settings.OPENFACE_BATCH_TIME_LIMIT_SECONDS, front.run_timeout_seconds) if limit]
    return min(given, default=None)


def _spec(space: Space, front: FrontMatter, warnings: tuple[Advice, ...]) -> dict[str, Any]:
    """Return what the worker and the data plane are told. The row's own settings go before the README's."""
    port = space.app_port or front.app_port or DEFAULT_PORT
    prefix = (front.prefix or "detect") if space.keep_prefix is None else ("keep" if space.keep_prefix else "strip")
    rewrite = bool(front.rewrite_host) if space.rewrite_host is None else space.rewrite_host
    return {
        "sdk": front.sdk,
        "app_file": front.app_file,
        "sdk_version": front.sdk_version or None,
        "python_version": front.python_version or None,
        "app_port": port,
        "startup_timeout_s": space.startup_timeout_seconds or front.startup_timeout_seconds,
        "environment": app_environment(space, title=front.title, port=port, keep_prefix=prefix == "keep"),
        "prefix": prefix,
        "rewrite_host": rewrite,
        "limits": {"run_timeout_s": _run_timeout(front)},
        "warnings": [warning.as_json() for warning in (*warnings, *front.warnings)],
    }
