"""What a Space keeps on this machine: its own data at /data, and a cache for models at /cache.

One volume each per repository and worker, made with the first container that mounts it and found again by name. It
outlives every container, restart and new commit; only `remove_all`, an explicit act of the machine's owner, ends it.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import stat
import tarfile
from dataclasses import dataclass

from docker.models.containers import Container
from docker.models.volumes import Volume
from docker.types import Mount

from gpu_worker.containers.connection import Connection, Missing, engine_errors
from gpu_worker.containers.labels import CACHE, DATA, ROLE_LABEL, WORKER_LABEL, labels_of
from gpu_worker.errors import JobFailed
from gpu_worker.journal import JobFacts

DATA_PATH, CACHE_PATH = "/data", "/cache"
PATHS = {DATA: DATA_PATH, CACHE: CACHE_PATH}
OPEN_MODE = 0o777
WRITABLE_BY_OTHERS = 0o002


@dataclass(frozen=True)
class KeptVolume:
    """One volume of this worker, for people to look at."""

    name: str
    repository: str
    role: str


class SpaceVolumes:
    """Raises EngineError throughout."""

    def __init__(self, engine: Connection, worker_id: str, *, kept: bool) -> None:
        """*kept* off: /data and /cache are there and writable, and gone with their container."""
        self._engine, self._worker_id, self._kept = engine, worker_id, kept

    def mounts(self, facts: JobFacts) -> list[Mount]:
        """What to mount into a job's container; the volumes are made where they are not there yet."""
        return [
            Mount(target=path, source=self._ensure(facts, role) if self._kept else None, type="volume")
            for role, path in PATHS.items()
        ]

    def _ensure(self, facts: JobFacts, role: str) -> str:
        name = volume_name(self._worker_id, facts.repository_id, role)
        with engine_errors():
            volume = self._engine().volumes.create(name, labels=labels_of(self._worker_id, facts, role))
        labels = volume.attrs.get("Labels") or {}  # of the one that was there before, where there was one
        if labels.get(WORKER_LABEL) != self._worker_id or labels.get(ROLE_LABEL) != role:
            raise JobFailed("start_failed", f"A volume named {name} that is not ours is in the way.")
        return name

    def open_up(self, container: Container) -> None:
        """Let any user of a created container write there; nothing changes where the image has seen to it itself.

        The engine makes a mount point that no image knows for root alone, and most Spaces run as user 1000. Nothing of
        the image is needed for this, not even a shell.
        """
        for path in PATHS.values():
            with engine_errors():
                mode, owner = self._owner(container, path)
                if owner == 0 and not mode & WRITABLE_BY_OTHERS:
                    container.put_archive("/", _directory(path, OPEN_MODE))

    def _owner(self, container: Container, path: str) -> tuple[int, int | None]:
        """The mode of a directory, and its user where that matters: of one that others may not write to."""
        for mount in container.attrs.get("Mounts") or ():
            if mount.get("Destination") == path:
                with contextlib.suppress(OSError, KeyError):  # seen from the host only; the engine's way takes 0.1 s
                    there = os.stat(mount["Source"])
                    return stat.S_IMODE(there.st_mode) & 0o777, there.st_uid
        pieces, facts = container.get_archive(path)
        mode = int((facts or {}).get("mode", 0)) & 0o777
        if mode & WRITABLE_BY_OTHERS:
            return mode, None
        head = b""
        for piece in pieces:
            head += piece
            if len(head) >= tarfile.BLOCKSIZE:
                break  # the directory itself comes first; its content may be large
        return mode, tarfile.TarInfo.frombuf(head[: tarfile.BLOCKSIZE], tarfile.ENCODING, "surrogateescape").uid

    # -- for the machine's owner -------------------------------------------------------------------------------

    def all(self) -> list[KeptVolume]:
        return [
            KeptVolume(str(volume.name), labels.get("openface.repository", ""), labels[ROLE_LABEL])
            for volume in self._ours()
            if (labels := volume.attrs.get("Labels") or {})
        ]

    def remove_all(self) -> int:
        """Remove every volume of this worker; how many. One that a container still mounts is an error."""
        removed = 0
        for volume in self._ours():
            try:
                with engine_errors():
                    volume.remove()
                    removed += 1
            except Missing:
                pass
        return removed

    def _ours(self) -> list[Volume]:
        with engine_errors():
            volumes = self._engine().volumes.list(filters={"label": f"{WORKER_LABEL}={self._worker_id}"})
        return [volume for volume in volumes if (volume.attrs.get("Labels") or {}).get(ROLE_LABEL) in PATHS]


def volume_name(worker_id: str, repository_id: str, role: str) -> str:
    """Readable, and its own for each worker and repository, whatever characters the id of the repository has."""
    readable = re.sub(r"[^a-z0-9]+", "-", repository_id.lower()).strip("-")[:30]
    digest = hashlib.sha256(f"{worker_id} {repository_id}".encode()).hexdigest()[:12]
    return "-".join(part for part in ("openface", readable, digest, role) if part)


def _directory(path: str, mode: int) -> bytes:
    """An archive of one empty directory, owned by root."""
    entry = tarfile.TarInfo(path.strip("/"))
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        archive.addfile(entry)
    return file.getvalue()
