"""Bring one repository at one commit into a directory, with the lease's own read token.

The token reaches git by GIT_CONFIG_* variables only: never argv, a URL or a file. The directory holds no ``.git``
afterwards, so a Dockerfile cannot copy one.
"""

from __future__ import annotations

import base64
import os
import random
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from gpu_worker.commands import Cancel, CommandTimeout, run_command
from gpu_worker.errors import JobFailed, JobInterrupted
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim

FETCH_TIMEOUT_SECONDS = 900.0
TOKEN_USER = "lease"
# A control plane that restarts is no fault of the Space: how long to try again before the job fails by it.
OUTAGE_SECONDS = 600.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
# What git and curl say (in English: LANG is ours) when nobody answered, or answered "not now".
OUTAGE = re.compile(
    rb"Failed to connect|Could(n't| not) (connect|resolve)|Connection (refused|reset|timed out)|Recv failure|"
    rb"Empty reply|timed out|early EOF|RPC failed|transfer closed|unexpected disconnect|returned error: (429|50[0234])"
)


class SourceFetcher:
    def __init__(self, *, verify_tls: bool | Path = True) -> None:
        self._verify_tls = verify_tls

    def fetch(
        self,
        claim: Claim,
        directory: Path,
        *,
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None] | None = None,
    ) -> None:
        """Fill the new *directory* with the tree of the claim's commit, LFS files and submodules included.

        Raises JobFailed (``commit_gone``, ``source_failed``, ``git_lfs_missing``) or JobInterrupted.
        """
        directory.mkdir(parents=True)
        git = _Git(directory, self._environment(claim, directory), output, cancel, started)
        output(f"Fetching {claim.owner}/{claim.repo} at {claim.revision}\n".encode())
        git.must("init", "--quiet", reason="source_failed")
        self._fetch_commit(git, claim)
        git.must("checkout", "--quiet", "--force", "--detach", claim.revision, reason="source_failed")
        if (directory / ".gitmodules").is_file():
            git.must("submodule", "update", "--init", "--recursive", "--depth", "1", reason="source_failed")
        if _wants_lfs(directory):
            self._pull_lfs(git, claim)
        _remove_git(directory)

    def _fetch_commit(self, git: _Git, claim: Claim) -> None:
        if git.run_through_outages("fetch", "--quiet", "--depth", "1", claim.clone_url, claim.revision) == 0:
            return
        # a server may refuse a bare id: take every branch and tag and look there
        everything = (
            "fetch",
            "--quiet",
            claim.clone_url,
            "+refs/heads/*:refs/remotes/origin/*",
            "+refs/tags/*:refs/tags/*",
        )
        if git.run_through_outages(*everything) != 0:
            raise JobFailed("source_failed", f"The repository could not be fetched: {git.last_words()}")
        if git.run("cat-file", "-e", claim.revision + "^{commit}") != 0:
            raise JobFailed("commit_gone", f"Commit {claim.revision} no longer exists in {claim.owner}/{claim.repo}.")

    def _pull_lfs(self, git: _Git, claim: Claim) -> None:
        if git.run("lfs", "version") != 0:
            raise JobFailed("git_lfs_missing", "The repository uses Git LFS, and this worker has no git-lfs.")
        git.must("config", "lfs.url", claim.clone_url + "/info/lfs", reason="source_failed")
        git.must("lfs", "fetch", claim.clone_url, claim.revision, reason="source_failed")
        git.must("lfs", "checkout", reason="source_failed")

    def _environment(self, claim: Claim, directory: Path) -> dict[str, str]:
        secret = base64.b64encode(f"{TOKEN_USER}:{claim.source_token}".encode()).decode()
        settings = {
            # scoped to this repository's address: a submodule elsewhere never sees the token
            f"http.{claim.clone_url}.extraHeader": f"Authorization: Basic {secret}",
            "http.followRedirects": "false",
            "safe.directory": "*",
            "advice.detachedHead": "false",
            "filter.lfs.smudge": "git-lfs smudge --skip -- %f",
            "filter.lfs.process": "git-lfs filter-process --skip",
            "filter.lfs.clean": "git-lfs clean -- %f",
            "filter.lfs.required": "false",
            "core.hooksPath": os.devnull,
        }
        if isinstance(self._verify_tls, Path):
            settings["http.sslCAInfo"] = str(self._verify_tls)
        elif not self._verify_tls:
            settings["http.sslVerify"] = "false"
        environment = {
            "PATH": os.environ.get("PATH", os.defpath),
            "HOME": str(directory),
            "LANG": "C.UTF-8",
            "GIT_TERMINAL_PROMPT": "0",
            "GIT_ALLOW_PROTOCOL": "https:http",
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_LFS_SKIP_SMUDGE": "1",
            "GIT_CONFIG_COUNT": str(len(settings)),
        }
        for place, (key, value) in enumerate(settings.items()):
            environment |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
        return environment


class _Git:
    """git in one directory; keeps its last output for an error's sentence."""

    def __init__(
        self,
        directory: Path,
        environment: dict[str, str],
        output: Callable[[bytes], None],
        cancel: Cancel,
        started: Callable[[ProcessIdentity | None], None] | None,
    ) -> None:
        self._directory, self._environment = directory, environment
        self._output, self._cancel, self._started = output, cancel, started
        self._last = b""

    def run(self, *arguments: str) -> int:
        self._last = b""
        try:
            return run_command(
                ("git", *arguments),
                cwd=self._directory,
                env=self._environment,
                output=self._hear,
                cancel=self._cancel,
                timeout_seconds=FETCH_TIMEOUT_SECONDS,
                started=self._started,
            )
        except FileNotFoundError:
            raise JobFailed("source_failed", "git is not installed on this worker.") from None
        except CommandTimeout:
            raise JobFailed(
                "source_failed", f"git {arguments[0]} took longer than {FETCH_TIMEOUT_SECONDS:.0f} s."
            ) from None

    def run_through_outages(self, *arguments: str) -> int:
        """Run a command that asks the control plane; while nobody answers there, again. Raises JobInterrupted."""
        deadline = time.monotonic() + OUTAGE_SECONDS
        pause = FIRST_PAUSE_SECONDS
        while (status := self.run(*arguments)) != 0 and OUTAGE.search(self._last) and time.monotonic() < deadline:
            self._output(b"The control plane does not answer; trying again.\n")
            _sleep(pause * random.uniform(0.8, 1.2), self._cancel)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        return status

    def must(self, *arguments: str, reason: str) -> None:
        if self.run_through_outages(*arguments) != 0:
            raise JobFailed(reason, f"git {arguments[0]} failed: {self.last_words()}")

    def last_words(self) -> str:
        lines = self._last.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else "no reason given"

    def _hear(self, data: bytes) -> None:
        self._last = (self._last + data)[-4096:]
        self._output(data)


def _sleep(seconds: float, cancel: Cancel) -> None:
    """Wait, or raise JobInterrupted as soon as the job is not wanted any more."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if cancel.is_set():
            raise JobInterrupted
        time.sleep(0.1)


def _wants_lfs(directory: Path) -> bool:
    attributes = directory / ".gitattributes"
    return attributes.is_file() and not attributes.is_symlink() and b"filter=lfs" in attributes.read_bytes()


def _remove_git(directory: Path) -> None:
    shutil.rmtree(directory / ".git")
    for link in directory.rglob(".git"):  # each submodule has one
        if link.is_dir() and not link.is_symlink():
            shutil.rmtree(link)
        else:
            link.unlink()
