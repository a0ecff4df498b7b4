"""What an earlier run of the tests left on the engine because it was killed: containers, networks, volumes.

The control plane of these tests names its repositories "r-…", as no forge does; each thing that a worker makes carries
that name. Only what is older than any run takes is removed: another run may be at work beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

from docker import DockerClient
from docker.errors import APIError

LABEL = "openface.repository"
OF_TESTS = "r-"
LONGEST_RUN = timedelta(hours=1)


def is_left(labels: Mapping[str, str] | None, created: str | int, *, now: datetime) -> bool:
    """Whether something with these labels, made at *created* (as the engine says it), is of an earlier run."""
    of_tests = str((labels or {}).get(LABEL, "")).startswith(OF_TESTS)
    return of_tests and now - _moment(created) > LONGEST_RUN


def _moment(created: str | int) -> datetime:
    if isinstance(created, int):
        return datetime.fromtimestamp(created, UTC)
    whole, _, rest = created.partition(".")  # nanoseconds are more than Python reads
    zone = rest.lstrip("0123456789")
    return datetime.fromisoformat((whole + zone).replace("Z", "+00:00"))


def clear_leftovers(engine: DockerClient, *, now: datetime, label: str = LABEL) -> list[str]:
    """Remove them, in the order in which they hold each other; their names. *label*: look at no others."""
    removed = []
    for name, thing, labels, created in _things(engine, label):
        if is_left(labels, created, now=now):
            with suppress(APIError):  # in use after all, or another run was faster
                thing.remove(**({"force": True} if name.startswith("container") else {}))
                removed.append(name)
    return removed


def _things(engine: DockerClient, label: str) -> Iterator[tuple[str, Any, Mapping[str, str] | None, str | int]]:
    only: dict[str, str | list[str] | bool] = {"label": label}
    for container in engine.containers.list(all=True, filters=only, sparse=True):
        attrs = container.attrs
        yield f"container {container.short_id}", container, attrs.get("Labels"), attrs["Created"]
    for network in engine.networks.list(filters=only):
        yield f"network {network.name}", network, network.attrs.get("Labels"), network.attrs["Created"]
    for volume in engine.volumes.list(filters=only):
        yield f"volume {volume.name}", volume, volume.attrs.get("Labels"), volume.attrs["CreatedAt"]
