"""Bring one repository at one commit into a directory, with the lease's own read token.

In this order, so that nothing is written that may not stay: fetch the commit, count what it holds, check it out, put
Git LFS objects in, then do the same for each submodule. git's own data lie beside the tree while this goes on and are
gone afterwards; the tree never has a ``.git``, so a Dockerfile cannot copy one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from gpu_worker.commands import Cancel
from gpu_worker.deep_trees import remove_tree
from gpu_worker.disk import ensure_room
from gpu_worker.errors import JobFailed
from gpu_worker.git import REFUSED, Access, Git, Surroundings
from gpu_worker.lfs import pull_lfs
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.protocol import Claim
from gpu_worker.source_limits import Budget, SourceLimits, Tree
from gpu_worker.submodules import DEEPEST, MOST, Submodule, submodules_of
from gpu_worker.tree_names import shown
from gpu_worker.within import is_within

OWN_USER = "lease"
# The store no longer has the commit; and: the server gives only what a branch or tag points at.
NO_SUCH_COMMIT = re.compile(rb"not our ref|bad object|unable to find|no such remote ref")
ONLY_ADVERTISED = re.compile(rb"unadvertised object")


class SourceFetcher:
    def __init__(self, *, verify_tls: bool | Path = True, limits: SourceLimits | None = None) -> None:
        self._verify_tls = verify_tls
        self._limits = limits or SourceLimits()

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

        Raises JobInterrupted, or JobFailed: ``commit_gone``, ``source_failed``, ``source_too_large``, ``disk_full``,
        ``submodule_refused``, ``git_lfs_missing``, ``lfs_object_missing``.
        """
        around = Surroundings(output, cancel, started, self._verify_tls)
        aside = directory.with_name(directory.name + ".git")
        try:
            _Fetch(claim, aside, around, Budget(self._limits)).repository(directory)
        finally:
            remove_tree(aside)


class _Fetch:
    """One source on its way in."""

    def __init__(self, claim: Claim, aside: Path, around: Surroundings, budget: Budget) -> None:
        self._claim, self._aside, self._around, self._budget = claim, aside, around, budget
        self._count = 0

    def repository(self, directory: Path) -> None:
        claim = self._claim
        git = self._git(directory, Access(claim.clone_url, OWN_USER, claim.source_token))
        git.say(f"Fetching {claim.owner}/{claim.repo} at {claim.revision}")
        git.init()
        self._fetch_commit(git, claim.revision, f"{claim.owner}/{claim.repo}")
        self._check_out(git, claim.revision, depth=0, inside="")

    def _submodule(self, one: Submodule, directory: Path, *, depth: int, path: str) -> None:
        """*path* is where it is from the root of the job's repository, for people."""
        if self._count > MOST:
            raise JobFailed("submodule_refused", f"The repository has more than {MOST} submodules.")
        # The lease's id as user name asks for another repository than the job's own.
        git = self._git(directory, Access(one.address, self._claim.lease, self._claim.source_token))
        git.say(f"Fetching the submodule {shown(path)} from {one.full_name} at {one.revision}")
        git.init()
        try:
            self._fetch_commit(git, one.revision, one.full_name)
        except JobFailed as failure:
            if failure.reason == "source_failed" and git.said(REFUSED):
                raise JobFailed(
                    "submodule_refused",
                    f"The submodule {shown(path)} cannot be read: {one.full_name} is missing, or somebody may push to "
                    f"{self._claim.owner}/{self._claim.repo} who may not read it.",
                ) from failure
            raise JobFailed(failure.reason, f"Submodule {shown(path)}: {failure.detail}") from failure
        self._check_out(git, one.revision, depth=depth, inside=path)

    def _check_out(self, git: Git, revision: str, *, depth: int, inside: str) -> None:
        tree = Tree.of(git, revision, self._budget)
        ensure_room(git.tree, tree.size)
        git.must("checkout", "--quiet", "--force", "--detach", revision)
        pull_lfs(git, revision, tree, self._budget)
        for one in submodules_of(git, revision, tree.links):
            path = f"{inside}/{one.path}" if inside else one.path
            if depth >= DEEPEST:
                raise JobFailed(
                    "submodule_refused", f"Submodules are nested more than {DEEPEST} deep at {shown(path)}."
                )
            directory = git.tree / one.path
            if not is_within(directory, git.tree):  # git checks this too, at the checkout
                raise JobFailed("submodule_refused", f"The submodule {shown(path)} would leave the repository.")
            self._submodule(one, directory, depth=depth + 1, path=path)

    def _fetch_commit(self, git: Git, revision: str, full_name: str) -> None:
        watch = self._budget.watch(git)
        if git.run_through_outages("fetch", "--quiet", "--depth", "1", "origin", revision, watch=watch) == 0:
            return
        if git.said(ONLY_ADVERTISED):  # take every branch and tag and look there
            everything = ("+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*")
            if git.run_through_outages("fetch", "--quiet", "origin", *everything, watch=watch) == 0:
                if git.answer("cat-file", "-e", revision + "^{commit}") is not None:
                    return
                raise self._gone(git, revision, full_name)
        if git.said(NO_SUCH_COMMIT):
            raise self._gone(git, revision, full_name)
        raise JobFailed("source_failed", f"{full_name} could not be fetched: {git.last_words()}")

    def _gone(self, git: Git, revision: str, full_name: str) -> JobFailed:
        """A forced push took the commit away: the sentence names the newest one, where the server tells it."""
        newest = re.search(
            rb"^([0-9a-f]{40,64})\tHEAD$", git.answer("ls-remote", "origin", "HEAD") or b"", re.MULTILINE
        )
        then = f"; the newest is {newest[1].decode()}" if newest else ""
        return JobFailed("commit_gone", f"Commit {revision} no longer exists in {full_name}{then}.")

    def _git(self, tree: Path, access: Access) -> Git:
        self._count += 1
        return Git(tree, self._aside / str(self._count), access, self._around)
