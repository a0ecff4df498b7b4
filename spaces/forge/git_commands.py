"""The git program on a bare repository, within bounds: time, output, environment.

No shell, nothing of the caller's git configuration, no prompt, no network. Whoever passes something that came from a
person puts it where git cannot take it for an option: behind `--end-of-options`, inside `refs/heads/…`, or on stdin.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import tempfile
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from pathlib import Path

from spaces.forge.errors import TooLarge, Unavailable

TIMEOUT_SECONDS = 20.0  # reads take milliseconds; a disk that needs longer is a disk in trouble
OUTPUT_LIMIT = 8 * 1024 * 1024  # bytes
CHUNK = 64 * 1024  # bytes


class GitFailed(Exception):
    """Git ended with an error. The text is its own first line, without paths of this machine."""

    def __init__(self, code: int, stderr: bytes) -> None:
        text = stderr.decode("utf-8", "replace").strip()
        super().__init__(text.splitlines()[0] if text else f"git ended with {code}")
        self.code = code


def environment(repository: Path, extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the whole environment of a git process: PATH and what is said here, nothing inherited."""
    return {
        "PATH": os.environ.get("PATH", os.defpath),
        "HOME": os.devnull,
        "LC_ALL": "C.UTF-8",
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "",  # nothing is ever fetched from here
        "GIT_NO_LAZY_FETCH": "1",
        "GIT_NO_REPLACE_OBJECTS": "1",  # refs/replace could make one id show another content
        "GIT_OPTIONAL_LOCKS": "0",
        # The directory may belong to another account than the one that we run as; it is ours all the same.
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": str(repository),
        **(extra or {}),
    }


def run_git(
    repository: Path,
    arguments: Sequence[str],
    *,
    stdin: bytes = b"",
    extra: Mapping[str, str] | None = None,
    limit: int = OUTPUT_LIMIT,
    timeout: float = TIMEOUT_SECONDS,
    cwd: Path | None = None,
) -> bytes:
    """Run git and return its output.

    GitFailed: it said no; TooLarge: more than `limit` bytes; Unavailable: longer than `timeout` seconds.
    """
    with tempfile.TemporaryFile() as errors, tempfile.TemporaryFile() as questions:
        questions.write(stdin)
        questions.seek(0)
        try:
            process = subprocess.Popen(
                ["git", f"--git-dir={repository}", *arguments],
                stdin=questions,
                stdout=subprocess.PIPE,
                stderr=errors,
                env=environment(repository, extra),
                cwd=cwd,
                start_new_session=True,
            )
        except OSError as error:
            raise Unavailable(f"The program git cannot be started here ({error.strerror}).", retry_after=60) from error
        assert process.stdout is not None
        late = threading.Event()

        def too_late() -> None:
            if process.returncode is None:  # not reaped: the id is still its own
                late.set()
                _kill(process.pid)

        timer = threading.Timer(timeout, too_late)
        timer.start()
        try:
            output = process.stdout.read(limit + 1)
            if len(output) > limit:
                _kill(process.pid)
            code = process.wait()
        finally:
            timer.cancel()
            process.stdout.close()
            if process.poll() is None:  # an exception on the way
                _kill(process.pid)
                process.wait()
        if late.is_set():
            raise Unavailable(f"The repository did not answer within {timeout:g} seconds.")
        if len(output) > limit:
            raise TooLarge
        if code != 0:
            errors.seek(0)
            raise GitFailed(code, errors.read(4096))
        return output


async def stream_git(
    repository: Path,
    arguments: Sequence[str],
    body: AsyncIterator[bytes],
    *,
    extra: Mapping[str, str] | None = None,
) -> AsyncGenerator[bytes]:
    """Run git with `body` as its input and yield its output as it comes.

    Closing the iterator, or an error of `body`, ends git. GitFailed at the end tells the caller that what was yielded
    is not whole.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            "git",
            *arguments,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment(repository, extra),
            start_new_session=True,
        )
    except OSError as error:
        raise Unavailable(f"The program git cannot be started here ({error.strerror}).", retry_after=60) from error
    assert process.stdin is not None and process.stdout is not None
    feeder = asyncio.create_task(_feed(process.stdin, body))
    try:
        while chunk := await process.stdout.read(CHUNK):
            if feeder.done():
                feeder.result()  # a body that was refused (too large, broken) ends the answer with its own error
            yield chunk
        if feeder.done():
            feeder.result()
        code = await process.wait()  # what is left of the body, git did not need
        if code != 0:
            raise GitFailed(code, b"")
    finally:
        feeder.cancel()
        await asyncio.gather(feeder, return_exceptions=True)
        if process.returncode is None:
            _kill(process.pid)
            # Shielded: a cancelled request must not leave a zombie behind.
            await asyncio.shield(process.wait())


async def _feed(stdin: asyncio.StreamWriter, body: AsyncIterator[bytes]) -> None:
    """Copy the body to git. Git may have read enough and hang up; that is not an error of the body."""
    try:
        async for chunk in body:
            if stdin.is_closing():  # uvloop would call a write a mistake of ours
                break
            stdin.write(chunk)
            await stdin.drain()
    except (BrokenPipeError, ConnectionResetError):
        pass
    finally:
        stdin.close()


def _kill(pid: int) -> None:
    """End the process and what it started (it leads its own session)."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)
