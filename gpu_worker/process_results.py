"""The results directory of a batch job that runs as a plain process, read as a container's is: as a tar stream."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Sequence
from pathlib import Path

from gpu_worker.deep_trees import files_below
from gpu_worker.errors import EngineError

CHUNK_BYTES = 1024 * 1024


def tar_of(directory: Path, path: str = "") -> Generator[bytes, None, None] | None:
    """A tar of the *directory*, or of one file *path* in it; None where there is none. Links are not followed."""
    wanted = directory / path
    if wanted.is_symlink() or not wanted.exists():
        return None
    return _pieces(wanted)


def paths_in(directory: Path) -> Sequence[str]:
    """Every file below the *directory*, links and the like included. No link is followed."""
    return [os.path.relpath(file.path, directory) for file in files_below(directory)]


def _pieces(wanted: Path) -> Generator[bytes, None, None]:
    command = ["tar", "-C", str(wanted.parent), "-cf", "-", "--", wanted.name]
    try:
        tar = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    except OSError as problem:
        raise EngineError(f"the results could not be read: {problem}") from problem
    with tar:
        assert tar.stdout is not None
        try:
            while piece := tar.stdout.read(CHUNK_BYTES):
                yield piece
        finally:
            tar.kill()  # a reader that has seen enough does not wait for the rest
