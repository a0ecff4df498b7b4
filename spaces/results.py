"""Results of batch jobs as people are shown them: names, sizes, until when, where to fetch them, and what is missing.

The files themselves are served on the runtime origin only: they are untrusted (`runtime_proxy.artifacts_download`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from django.utils.translation import gettext_lazy

from jobs import artifacts
from jobs.models import Artifact, Job
from spaces.models import Space
from spaces.origin import runtime_origin

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

RUNS_SHOWN = 20
FILES_ON_THE_STAGE = 10  # the rest is on the Results tab
FILES_SHOWN = 1000  # the API has them all

LEFT_OUT: Mapping[str, _StrPromise] = {
    Artifact.LeftOut.FILE_TOO_LARGE: gettext_lazy("larger than one result may be"),
    Artifact.LeftOut.JOB_QUOTA: gettext_lazy("more than the results of one job may be together"),
    Artifact.LeftOut.TOO_MANY_FILES: gettext_lazy("more files than one job may have"),
    Artifact.LeftOut.BAD_NAME: gettext_lazy("its name cannot be kept"),
    Artifact.LeftOut.UNREADABLE: gettext_lazy("it could not be read"),
    Artifact.LeftOut.STOPPED: gettext_lazy("the job was stopped before it was delivered"),
}


@dataclass(frozen=True)
class File:
    """A result, or one that was left out (then `url` is empty and `why` is not)."""

    path: str
    size: int | None
    sha256: str
    url: str
    code: str = ""
    why: str = ""


@dataclass(frozen=True)
class Shown:
    """The results of one job."""

    job: Job
    files: list[File]
    left_out: list[File]
    size: int
    delivered_at: datetime | None
    kept_until: datetime | None
    more: int = 0  # files that are not in `files`

    @property
    def count(self) -> int:
        return len(self.files) + self.more

    def __bool__(self) -> bool:
        """Whether there is anything to tell."""
        return bool(self.files or self.left_out)

    def as_json(self) -> dict[str, Any]:
        """What programs are told."""
        return {
            "job": str(self.job.pk),
            "state": self.job.state,
            "revision": self.job.revision,
            "exit_code": self.job.exit_code,
            "finished_at": self.job.finished_at.isoformat() if self.job.finished_at else None,
            "kept_until": self.kept_until.isoformat() if self.kept_until else None,
            "size": self.size,
            "files": [
                {"path": file.path, "size": file.size, "sha256": file.sha256, "url": file.url} for file in self.files
            ],
            "left_out": [{"path": file.path, "size": file.size, "reason": file.code} for file in self.left_out],
        }


def of(space: Space, job: Job, *, limit: int | None = FILES_SHOWN) -> Shown:
    """Return a job's results. Two queries."""
    found = artifacts.results_of(job)
    shown = found.files if limit is None else found.files[:limit]
    root = f"{runtime_origin(space)}/results/{quote(space.owner)}/{quote(space.name)}/{job.pk}/"
    return Shown(
        job=job,
        files=[File(row.path, row.size, row.sha256, root + quote(row.path)) for row in shown],
        left_out=[
            File(row.path, row.size, "", "", row.left_out, str(LEFT_OUT.get(row.left_out, row.left_out)))
            for row in found.left_out
        ],
        size=found.size,
        delivered_at=max((row.created_at for row in found.files), default=None),
        kept_until=found.kept_until,
        more=len(found.files) - len(shown),
    )


def batch_jobs(space: Space) -> list[Job]:
    """Return the Space's newest batch jobs, newest first."""
    return list(Job.objects.filter(space=space, mode=Job.Mode.BATCH).order_by("-seq")[:RUNS_SHOWN])


def counts(jobs: list[Job]) -> dict[Any, int]:
    """Return how many results each of these jobs has."""
    return artifacts.counts(jobs)
