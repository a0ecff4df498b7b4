"""Git LFS objects of a local repository: files below its directory, where git-lfs itself keeps them.

`git lfs push` to the path of a bare repository puts them there, so an operator needs no tool of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

from spaces.forge.errors import NotFound, Unavailable

CHUNK = 256 * 1024  # bytes; each is read in a thread, which costs some 50 µs


def sizes(repository: Path, oids: Sequence[str]) -> dict[str, int]:
    """Return the size of each object that is there."""
    found = {}
    for oid in oids:
        file = _file(repository, oid)
        if file.is_file():
            found[oid] = file.stat().st_size
    return found


async def stream(repository: Path, oid: str) -> AsyncGenerator[bytes]:
    """Yield an object piece by piece. NotFound: it is not there; Unavailable: it cannot be read."""
    try:
        content = await asyncio.to_thread(_file(repository, oid).open, "rb")
    except FileNotFoundError:
        raise NotFound("The object is not on this server.") from None
    except OSError as error:
        raise Unavailable(f"An LFS object cannot be read ({error.strerror}).", retry_after=60) from error
    with content:
        while chunk := await asyncio.to_thread(content.read, CHUNK):
            yield chunk


def _file(repository: Path, oid: str) -> Path:
    if len(oid) != 64 or not set(oid) <= set("0123456789abcdef"):
        raise NotFound("That is not the id of an LFS object.")
    return repository / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
