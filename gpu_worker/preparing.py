"""From a claim to something that can be started: fetch the source, build, and once more after a full disk."""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from gpu_worker.commands import Cancel
from gpu_worker.deep_trees import remove_tree
from gpu_worker.errors import JobFailed
from gpu_worker.executor import Prepared
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim
from gpu_worker.workshop import Workshop

logger = logging.getLogger(__name__)


class Patiently(Protocol):
    """Does it; while the engine does not answer, again."""

    def __call__(self, act: Callable[[], Prepared], /) -> Prepared: ...


def prepare(
    workshop: Workshop,
    claim: Claim,
    *,
    output: Callable[[bytes], None],
    cancel: Cancel,
    started: Callable[[ProcessIdentity | None], None],
    patiently: Patiently,
    suits: Callable[[Mapping[str, str]], None] = lambda environment: None,
) -> Prepared:
    """Fetch and build. A disk that is full is made room on once; the second time the job fails by it.

    *suits* hears before the build what it is built on, and raises JobDeclined where that cannot run here.
    A source whose image is here already is not fetched at all. Raises JobFailed, JobInterrupted. Nothing of the source
    is left afterwards.
    """
    try:
        return _once(workshop, claim, output, cancel, started, patiently, suits)
    except JobFailed as failure:
        if failure.reason != "disk_full":
            raise
        removed = workshop.make_room()
    output(f"The disk is full. Old images removed: {removed}. Trying once more.\n".encode())
    logger.warning("disk full", extra={"action": "disk_full", "lease": claim.lease, "images_removed": removed})
    try:
        return _once(workshop, claim, output, cancel, started, patiently, suits)
    except JobFailed as failure:
        if failure.reason != "disk_full":
            raise
        sentence = f"The disk of {workshop.worker_name} is full, also after a clean-up. {failure.detail}"
        raise JobFailed("disk_full", sentence) from failure


def _once(
    workshop: Workshop,
    claim: Claim,
    output: Callable[[bytes], None],
    cancel: Cancel,
    started: Callable[[ProcessIdentity | None], None],
    patiently: Patiently,
    suits: Callable[[Mapping[str, str]], None],
) -> Prepared:
    def build() -> Prepared:
        suits(workshop.executor.foundation(claim, source))
        return workshop.executor.prepare(claim, source, output=output, cancel=cancel, started=started)

    there = patiently(lambda: workshop.executor.at_hand(claim) or Prepared())
    if there.image_id is not None:
        output(b"The image of this commit is already here; nothing to build.\n")
        return there
    work: Path | None = None
    try:
        work = _workplace(workshop.work_dir, claim)
        source = work / "source"
        workshop.sources.fetch(claim, source, output=output, cancel=cancel, started=started)
        return patiently(build)
    except OSError as problem:
        if problem.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise JobFailed("disk_full", "There was no space left for the source.") from problem
    finally:
        started(None)
        if work is not None:
            remove_tree(work)


def _workplace(work_dir: Path, claim: Claim) -> Path:
    """A new directory; the same one for each build of a repository, unless another job has it at the moment.

    The engine keeps a copy of each directory that it built from, and goes on with that copy when it comes again.
    """
    work_dir.mkdir(parents=True, exist_ok=True)
    usual = work_dir / f"repository-{re.sub(r'[^A-Za-z0-9]+', '-', claim.repository_id)[:80]}"
    try:
        os.mkdir(usual)
        return usual
    except FileExistsError:
        own = work_dir / claim.lease
        remove_tree(own)
        os.mkdir(own)
        return own
