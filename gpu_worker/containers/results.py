"""The results directory of a batch job's container: made before the app starts, read after it has ended.

While the engine hands out files of a container it holds that container's lock: `inspect` of it hangs until the stream
is closed. Close it soon.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Generator, Iterator, Sequence

from gpu_worker.containers.connection import Connection, Missing, engine_errors
from gpu_worker.environment import RESULTS_PATH

CHUNK_BYTES = 1024 * 1024
DELETED = 2  # the kind of a change, as the engine counts them
EVERYBODY_MAY_WRITE = 0o1777  # apps run as any user; sticky, as /tmp


def make_directory(engine: Connection, container_id: str) -> None:
    """Make the directory in a container that is not running yet; one that the image brings is opened to everybody."""
    entry = tarfile.TarInfo(RESULTS_PATH.lstrip("/"))
    entry.type, entry.mode = tarfile.DIRTYPE, EVERYBODY_MAY_WRITE
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.addfile(entry)
    with engine_errors():
        engine().api.put_archive(container_id, "/", archive.getvalue())


def read(engine: Connection, container_id: str, path: str) -> Generator[bytes, None, None] | None:
    """A tar of the directory, or of one file in it; None where there is none. The pieces raise EngineSilent."""
    try:
        with engine_errors():
            where = f"{RESULTS_PATH}/{path}" if path else RESULTS_PATH
            pieces, _ = engine().api.get_archive(container_id, where, chunk_size=CHUNK_BYTES)
    except Missing:
        return None
    return _pieces(pieces)


def paths(engine: Connection, container_id: str) -> Sequence[str]:
    """What is below the directory, from the engine's list of what the container changed: nothing is read for it.

    So without what the image brought, and without directories that hold anything. Raises EngineError.
    """
    with engine_errors():
        changes = engine().api.diff(container_id) or []
    below = f"{RESULTS_PATH}/"
    found = [change["Path"] for change in changes if change["Kind"] != DELETED and change["Path"].startswith(below)]
    directories = {path.rpartition("/")[0] for path in found}
    return [path.removeprefix(below) for path in found if path not in directories]


def _pieces(pieces: Iterator[bytes]) -> Generator[bytes, None, None]:
    with engine_errors():
        yield from pieces
