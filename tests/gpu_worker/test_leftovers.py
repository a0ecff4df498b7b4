"""A run of the tests clears away what a killed one left on the engine, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import docker
import pytest
from docker import DockerClient

from tests.gpu_worker.leftovers import LABEL, clear_leftovers, is_left

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("labels", "created", "left"),
    [
        ({LABEL: "r-box"}, "2026-11-30T10:59:00Z", True),
        ({LABEL: "r-box"}, "2026-11-30T10:59:00.123456789Z", True),
        ({LABEL: "r-box"}, "2026-11-30T19:59:00.123456789+09:00", True),
        ({LABEL: "r-box"}, int((NOW - timedelta(minutes=61)).timestamp()), True),
        ({LABEL: "r-box"}, "2026-11-30T11:01:00Z", False),
        ({LABEL: "17"}, "2026-01-01T00:00:00Z", False),
        ({}, "2026-01-01T00:00:00Z", False),
        (None, "2026-01-01T00:00:00Z", False),
    ],
    ids=["old", "nanoseconds", "another zone", "seconds", "perhaps in use", "of a real forge", "foreign", "bare"],
)
def test_only_what_is_of_tests_and_older_than_any_run_is_left(
    labels: dict[str, str] | None, created: str | int, left: bool
) -> None:
    assert is_left(labels, created, now=NOW) is left


@pytest.fixture
def engine() -> Iterator[DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.mark.docker
def test_volumes_and_networks_of_a_killed_run_are_removed(engine: DockerClient) -> None:
    mine = f"openface.worker={uuid.uuid4()}"  # so that this test touches nothing of a run beside it
    name, _, value = mine.partition("=")
    labels = {name: value, LABEL: "r-box"}
    volume = engine.volumes.create(f"openface-r-tests-{value[:8]}", labels=labels)
    network = engine.networks.create(f"openface-tests-{value[:8]}", labels=labels)

    assert clear_leftovers(engine, now=datetime.now(UTC), label=mine) == [], "they are young"

    later = datetime.now(UTC) + timedelta(hours=2)
    assert clear_leftovers(engine, now=later, label=mine) == [f"network {network.name}", f"volume {volume.name}"]
    assert engine.volumes.list(filters={"label": mine}) == []
