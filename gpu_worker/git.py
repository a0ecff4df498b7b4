"""The git program in one directory: nothing of this machine's configuration, the token in the environment only.

The token reaches git by GIT_CONFIG_* variables: never argv, a URL or a file. The repository's own data (``GIT_DIR``)
lies beside the tree, not in it, so nothing that reads the tree can take it along.
"""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpu_worker.commands import Cancel, CommandTimeout, run_command
from gpu_worker.deep_trees import files_below
from gpu_worker.errors import JobFailed
from gpu_worker.git_words import GitWords
from gpu_worker.outages import Patience
from gpu_worker.process_identity import ProcessIdentity
from gpu_worker.tree_names import one_line

FETCH_TIMEOUT_SECONDS = 900.0
LFS_TIMEOUT_SECONDS = 4 * 3600.0  # models of tens of gigabytes over a home connection
LAST_WORDS_BYTES = 4096
MOST_REMARKS = 20  # of one kind, about one commit
NO_SETTINGS: Mapping[str, str] = {}
# What git and curl say (in English: LANG is ours) when nobody answered, or answered "not now".
OUTAGE = re.compile(
    rb"Failed to connect|Could(n't| not) (connect|resolve)|[Cc]onnection (refused|reset|timed out)|Recv failure|"
    rb"Empty reply|timed out|early EOF|unexpected EOF|: EOF\b|RPC failed|transfer closed|unexpected disconnect|"
    rb"(returned error|Server error): (429|50[0234])|HTTP (429|50[0234])"
)
DISK_FULL = re.compile(rb"[Nn]o space left on device|Disk quota exceeded")
BROKEN_OBJECT = re.compile(rb"object (?P<id>[0-9a-f]{40,64}): (?P<what>\w+: [^\r\n]{1,200})")
REFUSED = re.compile(rb"could not read Username|Authentication failed|returned error: 40[13]")
# What git checks in every object that arrives, but what also stands in honest histories: programs of long ago wrote
# dates, addresses and modes in their own way, and nobody can correct a commit. None of it decides where a file goes.
HARMLESS = (
    *("badDate", "badDateOverflow", "badTimezone", "badEmail", "badName", "missingEmail", "missingNameBeforeEmail"),
    *("missingSpaceBeforeDate", "missingSpaceBeforeEmail", "multipleAuthors", "zeroPaddedFilemode"),
)


class GitTimeout(JobFailed):
    """A git command was ended because it took too long."""


@dataclass(frozen=True)
class Access:
    """Where a repository is, and what opens it."""

    address: str
    user: str
    token: str

    def settings(self) -> dict[str, str]:
        secret = base64.b64encode(f"{self.user}:{self.token}".encode()).decode()
        # scoped to this repository's address: nobody else ever sees the token, and no redirect takes it along
        return {
            f"http.{self.address}.extraHeader": f"Authorization: Basic {secret}",
            "http.followRedirects": "false",
        }


@dataclass(frozen=True)
class Surroundings:
    """What all git commands of one job share."""

    output: Callable[[bytes], None]
    cancel: Cancel
    started: Callable[[ProcessIdentity | None], None] | None
    verify_tls: bool | Path = True


class Git:
    """git on one tree; keeps its last output for an error's sentence."""

    def __init__(self, tree: Path, repository: Path, access: Access, around: Surroundings) -> None:
        """*repository* is a directory of git's own, which must not be inside *tree*; both are made by ``init``."""
        self.tree, self.access, self.around, self.repository = tree, access, around, repository
        self._environment = environment(tree, repository, access, around.verify_tls)
        self._last = b""
        self._words = GitWords(around.output)

    def init(self) -> None:
        """Make an empty repository. Raises JobFailed."""
        self.tree.mkdir(parents=True, exist_ok=True)
        (self.repository / "home").mkdir(parents=True)
        self.must("init", "--quiet")

    def run(
        self,
        *arguments: str,
        read: Callable[[bytes], None] | None = None,
        watch: Callable[[], None] | None = None,
        timeout_seconds: float = FETCH_TIMEOUT_SECONDS,
        settings: Mapping[str, str] = NO_SETTINGS,
    ) -> int:
        """Run git and return its exit code. Its output goes to the build log, or to *read* only.

        Raises JobFailed when the disk is full, the time is over or git is missing; what *watch* and *read* raise.
        """
        self._last = b""
        try:
            status = run_command(
                ("git", *(word for name, value in settings.items() for word in ("-c", f"{name}={value}")), *arguments),
                cwd=self.tree,
                env=self._environment,
                output=self._hear if read is None else read,
                cancel=self.around.cancel,
                timeout_seconds=timeout_seconds,
                started=self.around.started,
                watch=watch,
            )
        except FileNotFoundError:
            raise JobFailed("source_failed", "git is not installed on this worker.") from None
        except CommandTimeout:
            raise GitTimeout("source_failed", f"git {arguments[0]} took longer than {timeout_seconds:.0f} s.") from None
        finally:
            self._words.end()
        if status != 0 and DISK_FULL.search(self._last):
            raise JobFailed("disk_full", f"There was no space left while git ran {arguments[0]}.")
        return status

    def run_through_outages(
        self,
        *arguments: str,
        watch: Callable[[], None] | None = None,
        timeout_seconds: float = FETCH_TIMEOUT_SECONDS,
    ) -> int:
        """Run a command that asks the control plane; while nobody answers there, again. Raises JobInterrupted.

        What arrived meanwhile, and goes on from there, brings new patience: a download of hours may break off often.
        """
        patience, most = Patience(self.around.output, self.around.cancel), self.stored_bytes()
        while (status := self.run(*arguments, watch=watch, timeout_seconds=timeout_seconds)) != 0:
            if (stored := self.stored_bytes()) > most:
                patience, most = Patience(self.around.output, self.around.cancel), stored
            if not (self.said(OUTAGE) and patience.again()):
                break
        return status

    def must(self, *arguments: str) -> None:
        """Run a command that has no reason to fail. Raises JobFailed with git's last words."""
        if self.run(*arguments) != 0:
            raise JobFailed("source_failed", f"git {arguments[0]} failed: {self.last_words()}")

    def answer(self, *arguments: str, limit: int = 8 * 1024 * 1024) -> bytes | None:
        """The output of a command, unless it fails. Raises JobFailed when it has more than *limit* bytes."""
        heard = bytearray()

        def take(data: bytes) -> None:
            heard.extend(data)
            if len(heard) > limit:
                raise JobFailed("source_too_large", f"git {arguments[0]} has more to say than anybody would read.")

        return bytes(heard) if self.run(*arguments, read=take) == 0 else None

    def say(self, text: str) -> None:
        """One line in the build log, whatever stands in *text*."""
        self.around.output(f"{one_line(text)}\n".encode())

    def say_each(self, lines: Iterable[str]) -> None:
        """Such lines in the build log, of which a repository may cause any number: the first, and how many more."""
        told = list(lines)
        for line in told[:MOST_REMARKS]:
            self.say(line)
        if len(told) > MOST_REMARKS:
            self.say(f"… and {len(told) - MOST_REMARKS} more like this.")

    def said(self, pattern: re.Pattern[bytes]) -> bool:
        """Whether the last command said that."""
        return pattern.search(self._last) is not None

    def last_words(self, *, but: str = "") -> str:
        """The last line of the last command, passing over one that begins with *but*: it says nothing.

        Of an object that git refuses it is the line that says which, and why.
        """
        broken = BROKEN_OBJECT.search(self._last)
        if broken is not None:
            what = one_line(broken["what"].decode(errors="replace"))
            return f"git refuses its object {broken['id'].decode()}: {what}"
        lines = self._last.decode(errors="replace").strip().splitlines()
        telling = [line for line in lines if not (but and line.startswith(but))]
        return one_line(telling[-1]) if telling else "no reason given"

    def stored_bytes(self, under: str = "") -> int:
        """What lies in the repository so far, or in this folder of it; unfinished downloads count."""
        place = self.repository / under
        return sum(_size(Path(file.path)) for file in files_below(place))

    def _hear(self, data: bytes) -> None:
        self._last = (self._last + data)[-LAST_WORDS_BYTES:]
        self._words.hear(data)


def environment(tree: Path, repository: Path, access: Access, verify_tls: bool | Path) -> Mapping[str, str]:
    """The whole environment of a git process: PATH and what is said here, nothing inherited."""
    settings = {
        **access.settings(),
        "safe.directory": "*",
        "advice.detachedHead": "false",
        "fetch.recurseSubmodules": "false",
        "fetch.fsckObjects": "true",
        **{f"fetch.fsck.{problem}": "warn" for problem in HARMLESS},
        "submodule.recurse": "false",
        "core.hooksPath": os.devnull,
        "core.fsmonitor": "false",
        # no filter.lfs here: a checkout writes pointers; the objects come when it is known how large they are
        "remote.origin.url": access.address,
        # above what a repository's .lfsconfig says: its objects come from where its commits come from
        "lfs.url": access.address + "/info/lfs",
        "lfs.concurrentTransfers": "4",
        "lfs.transfer.maxRetries": "2",  # our own patience is longer, and tells people of it
    }
    if isinstance(verify_tls, Path):
        settings["http.sslCAInfo"] = str(verify_tls)
    elif not verify_tls:
        settings["http.sslVerify"] = "false"
    variables = {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": str(repository / "home"),  # not the tree: a .netrc of the repository is nobody's
        "LANG": "C.UTF-8",
        "GIT_DIR": str(repository),
        "GIT_WORK_TREE": str(tree),
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ASKPASS": "",
        "GIT_ALLOW_PROTOCOL": "https:http",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for place, (key, value) in enumerate(settings.items()):
        variables |= {f"GIT_CONFIG_KEY_{place}": key, f"GIT_CONFIG_VALUE_{place}": value}
    return variables


def _size(file: Path) -> int:
    try:
        return file.lstat().st_size
    except OSError:
        return 0  # renamed meanwhile
