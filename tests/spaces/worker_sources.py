"""What a worker fetches from the data plane: its own fetch, with real git and git-lfs, of a test's repositories."""

from __future__ import annotations

import hashlib
import threading
from pathlib import Path

import pytest

from gpu_worker.errors import JobFailed
from gpu_worker.protocol import Claim
from gpu_worker.source import SourceFetcher
from gpu_worker.source_limits import SourceLimits
from jobs.tokens import source_token
from spaces.forge.local import repository_directory
from spaces.models import LocalRepository
from tests.gpu_worker.schemas import golden
from tests.spaces.git_server import Claimed

NEVER = threading.Event()
POINTED = b"the weights of a model\n" * 1000
OID = hashlib.sha256(POINTED).hexdigest()
ATTRIBUTES = "*.bin filter=lfs diff=lfs merge=lfs -text\n"


def claim_of(mine: Claimed, server: str) -> Claim:
    """The claim as the worker gets it, of a job of alice/app."""
    lease = mine.lease
    changes = {
        "id": str(lease.job_id),
        "lease": str(lease.pk),
        "owner": lease.job.owner,
        "repo": lease.job.repo,
        "revision": lease.job.revision,
        "clone_url": f"{server}/git/{lease.job.owner}/{lease.job.repo}.git",
        "source_token": source_token(lease),
    }
    return Claim.read({**golden("claim.response")["minimal"], **changes})


def fetch(claim: Claim, directory: Path, *, limits: SourceLimits | None = None) -> str:
    """Fetch as the worker does; what it wrote to the build log."""
    output: list[bytes] = []
    SourceFetcher(limits=limits).fetch(claim, directory, output=output.append, cancel=NEVER)
    return b"".join(output).decode()


def refusal(claim: Claim, directory: Path, *, limits: SourceLimits | None = None) -> tuple[str, str]:
    """Fetch what cannot be fetched; the reason and the sentence."""
    with pytest.raises(JobFailed) as failure:
        fetch(claim, directory, limits=limits)
    return failure.value.reason, failure.value.detail


def pointer_to(content: bytes, *, told: int | None = None) -> str:
    """The text that stands for an object in a tree; *told*: another size than its own."""
    oid = hashlib.sha256(content).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {told or len(content)}\n"


POINTER = pointer_to(POINTED)


def gitmodules(path: str, url: str, more: str = "") -> str:
    return f'[submodule "{path}"]\n\tpath = {path}\n\turl = {url}\n{more}'


def keep_lfs(row: LocalRepository, content: bytes = POINTED) -> None:
    """Put an object where `git lfs push` to the repository's path puts it."""
    oid = hashlib.sha256(content).hexdigest()
    file = repository_directory(row.pk) / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    file.parent.mkdir(parents=True)
    file.write_bytes(content)
