"""Files that are either the old or the new one, never half of one."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write_private(path: Path, content: str, *, durable: bool = True) -> None:
    """Replace *path* by *content*, mode 0600, by a rename. *durable*: also survive a power cut (fsync)."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(content)
            give_to_owner(file.fileno(), path.parent)
            if durable:
                file.flush()
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def give_to_owner(descriptor: int, directory: Path) -> None:
    """What root writes on behalf of a service (`sudo openface-gpu-worker pause`) has to be readable for its account.

    By the descriptor, never by the path: that account could have put a link there.
    """
    if os.geteuid() == 0:
        owner = os.stat(directory)
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
