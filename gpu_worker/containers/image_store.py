"""The images this worker has built: which there are, when each was last used, and how one is removed for good.

What is kept about an image is kept by the engine itself, as tags: using one tags it again, which the engine dates; the
last one of a Space that came to run is tagged ``last-good-…``. So nothing is lost with the data directory, and the
owner sees in ``docker images`` what we see.
"""

from __future__ import annotations

import calendar
import logging
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from gpu_worker.containers.build_cache import BuildCache
from gpu_worker.containers.connection import Connection, Missing, engine_errors, quietly
from gpu_worker.containers.labels import IMAGE, REPOSITORY_LABEL, REVISION_LABEL, ROLE_LABEL, WORKER_LABEL
from gpu_worker.errors import EngineError, EngineSilent
from gpu_worker.garbage import OwnImage
from gpu_worker.journal import JobRecord
from gpu_worker.lent_images import LocalImage
from gpu_worker.protocol import Claim

logger = logging.getLogger(__name__)

OURS = "openface/"  # every name that we give begins with it
LAST_GOOD = "last-good-"


class ImageStore:
    """This worker's images on one engine. Any thread."""

    def __init__(self, worker_id: str, engine: Connection | None = None) -> None:
        self._worker_id = worker_id
        self._engine = engine or Connection()
        self._last_good = LAST_GOOD + re.sub(r"[^0-9a-f]", "", worker_id.lower())[:8]

    def all(self) -> list[OwnImage]:
        """Every image with this worker's label, named or not. Raises EngineError."""
        label = [f"{WORKER_LABEL}={self._worker_id}", f"{ROLE_LABEL}={IMAGE}"]
        with engine_errors():
            api = self._engine().api
            rows = api.images(filters={"label": label})
            used = {row["ImageID"] for row in api.containers(all=True)}
            return [self._image(row, used) for row in rows]

    def _image(self, row: dict[str, Any], used: set[str]) -> OwnImage:
        names = tuple(name for name in row.get("RepoTags") or () if name != "<none>:<none>")
        facts = self._inspect(row["Id"])
        tagged_at = _epoch((facts.get("Metadata") or {}).get("LastTagTime"))
        return OwnImage(
            id=row["Id"],
            names=names,
            repository=(row.get("Labels") or {}).get(REPOSITORY_LABEL, ""),
            revision=(row.get("Labels") or {}).get(REVISION_LABEL, ""),
            size=int(row.get("Size") or 0),
            used_at=max(float(row.get("Created") or 0), tagged_at),
            in_use=row["Id"] in used,
            last_good=any(name.startswith(OURS) and f":{self._last_good}" in name for name in names),
        )

    def note_use(self, image_id: str) -> None:
        """A job starts from this image: the engine dates a tag, also one that is there already."""
        quietly(lambda: self._tag(image_id))

    def name(self, image_id: str, name: str) -> None:
        """Give a new image its name; without one it would be anybody's to tidy away. Raises EngineError."""
        repository, _, tag = name.rpartition(":")
        with engine_errors():
            self._engine().api.tag(image_id, repository, tag)

    def built_for(self, claim: Claim, label: str, inputs: str) -> str | None:
        """The id of the image that an earlier build of the same commit and inputs left. Raises EngineSilent.

        Its name has to be ours: what somebody builds upon it has its labels too.
        """
        wanted = {
            ROLE_LABEL: IMAGE,
            REPOSITORY_LABEL: claim.repository_id,
            REVISION_LABEL: claim.revision,
            label: inputs,
        }
        try:
            with engine_errors():
                rows = self._engine().api.images(filters={"label": [f"{name}={text}" for name, text in wanted.items()]})
        except EngineSilent:
            raise
        except EngineError:
            return None
        named = (row for row in rows if any(name.startswith(OURS) for name in row.get("RepoTags") or ()))
        return max(((row["Created"], str(row["Id"])) for row in named), default=(0, None))[1]

    def find_local(self, name: str) -> LocalImage | None:
        """What there is on this machine under that name. Raises EngineSilent."""
        try:
            with engine_errors():
                found = self._inspect(name)
        except EngineSilent:
            raise
        except EngineError:
            return None
        labels = (found.get("Config") or {}).get("Labels") or {}
        built_here = labels.get(REPOSITORY_LABEL, "") if WORKER_LABEL in labels else ""
        return LocalImage(built_here, fetched=bool(found.get("RepoDigests")))

    def note_good(self, record: JobRecord) -> None:
        """The app of this job runs: its image is the one to keep of its repository."""
        image_id = record.image_id
        if image_id is not None:
            quietly(lambda: self._tag_as_good(image_id))

    def _tag_as_good(self, image_id: str) -> None:
        """Under the name that the last good one of this repository has, which so loses it; else under a new one."""
        repository = self._inspect(image_id)["Config"]["Labels"][REPOSITORY_LABEL]
        label = [f"{WORKER_LABEL}={self._worker_id}", f"{REPOSITORY_LABEL}={repository}"]
        rows = self._engine().api.images(filters={"label": label})
        tags = (name.rpartition(":")[2] for row in rows for name in row.get("RepoTags") or () if name.startswith(OURS))
        known = next((tag for tag in tags if tag.startswith(self._last_good)), None)
        self._tag(image_id, known or f"{self._last_good}-{secrets.token_hex(8)}")

    def _tag(self, image_id: str, tag: str | None = None) -> None:
        """Give an image that we have named *tag*, or once more the tag that it has."""
        for name in self._inspect(image_id).get("RepoTags") or ():
            repository, _, present = name.rpartition(":")
            if name.startswith(OURS) and not present.startswith(LAST_GOOD):
                self._engine().api.tag(image_id, repository, tag or present)
                return

    def _inspect(self, image_id: str) -> dict[str, Any]:
        return dict(self._engine().api.inspect_image(image_id))  # type: ignore[no-untyped-call]

    def remove_all(self, images: Sequence[OwnImage], removed: Callable[[OwnImage], None]) -> None:
        """Remove images and what of the build cache only they had; *removed* is called with each that is gone.

        One that somebody else still has a use for stays. Never by force: a container that uses it, or a name that
        somebody else gave it, keeps it. Raises EngineError.
        """
        cache = BuildCache(self._engine)
        layers: set[int] = set()
        for image in images:
            sizes = self._remove(image)
            if sizes is not None:
                layers |= sizes
                removed(image)
        if layers:
            cache.prune_what_had(layers)

    def _remove(self, image: OwnImage) -> set[int] | None:
        """Remove one image; the sizes of its layers, or None where it stays."""
        own = [name for name in image.names if name.startswith(OURS)]
        if image.names and not own:
            return None  # made here once, or built upon one of ours: by its id the engine would remove that last name
        with engine_errors():
            api = self._engine().api
            steps: list[dict[str, Any]] = api.history(image.id)  # type: ignore[no-untyped-call]
        for name in own or [image.id]:
            try:
                with engine_errors():
                    api.remove_image(name)
            except EngineError as problem:
                logger.info("image stays", extra={"action": "image_stays", "image": name, "problem": str(problem)})
        if self._is_there(image.id):
            return None
        logger.info(
            "image removed",
            extra={"action": "image_removed", "image": image.id, "names": list(image.names), "bytes": image.size},
        )
        return {int(step.get("Size") or 0) for step in steps}

    def _is_there(self, image_id: str) -> bool:
        try:
            with engine_errors():
                self._inspect(image_id)
        except Missing:
            return False
        return True


def _epoch(moment: object) -> float:
    """Seconds since 1970 of an engine time like 2026-01-02T03:04:05.678901234+01:00; 0 for none."""
    if not isinstance(moment, str) or moment.startswith("0001-"):
        return 0.0
    match = re.match(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.\d+)?(Z|([+-])(\d\d):(\d\d))\Z", moment)
    if match is None:
        return 0.0
    local = float(calendar.timegm(time.strptime(match[1], "%Y-%m-%dT%H:%M:%S")))
    if match[2] == "Z":
        return local
    away = int(match[4]) * 3600 + int(match[5]) * 60
    return local - away if match[3] == "+" else local + away
