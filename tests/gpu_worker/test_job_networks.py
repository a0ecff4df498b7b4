"""The network of a job fits the worker that serves it: one on the host, or one in a container."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from typing import Any

import docker
import pytest
from docker import DockerClient

from gpu_worker.containers.connection import Connection
from gpu_worker.containers.labels import SPACE, container_name, labels_of
from gpu_worker.containers.networks import ICC, JobNetworks
from gpu_worker.journal import JobFacts
from tests.gpu_worker.containerised import ensure_image
from tests.gpu_worker.images import BUSYBOX

pytestmark = pytest.mark.docker

WORKER = str(uuid.uuid4())
FACTS = JobFacts(
    job=str(uuid.uuid4()), lease=str(uuid.uuid4()), attempt=1, kind="cpu", mode="service", owner="alice",
    repo="networks", repository_id="r-networks", revision="0" * 40, port=7860, gpus=(),
)  # fmt: skip


@pytest.fixture
def engine() -> Iterator[DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture
def networks(engine: DockerClient) -> Iterator[JobNetworks]:
    networks = JobNetworks(Connection(), WORKER)
    yield networks
    networks.remove(FACTS)


@pytest.fixture
def made_by_one_in_a_container(engine: DockerClient, networks: JobNetworks) -> Any:
    """As a worker in a container makes it: containers may talk there. This test's worker is on the host."""
    labels = labels_of(WORKER, FACTS, SPACE)
    return engine.networks.create(container_name(FACTS), driver="bridge", labels=labels, options={ICC: "true"})


def there(engine: DockerClient) -> list[tuple[Any, str]]:
    return [
        (network.id, network.attrs["Options"][ICC]) for network in engine.networks.list(names=[container_name(FACTS)])
    ]


def test_one_that_is_there_and_fits_is_kept(engine: DockerClient, networks: JobNetworks) -> None:
    networks.ensure(FACTS)
    before = there(engine)
    networks.ensure(FACTS)

    assert there(engine) == before
    assert [setting for _, setting in before] == ["false"]


def test_one_that_a_worker_of_the_other_kind_made_is_made_anew(
    engine: DockerClient, networks: JobNetworks, made_by_one_in_a_container: Any
) -> None:
    networks.ensure(FACTS)

    ((made, setting),) = there(engine)
    assert setting == "false"
    assert made != made_by_one_in_a_container.id


def test_while_a_container_uses_it_it_stays_and_that_is_said(
    engine: DockerClient, networks: JobNetworks, made_by_one_in_a_container: Any, caplog: pytest.LogCaptureFixture
) -> None:
    container = engine.containers.run(
        ensure_image(engine), ["/busybox", "sleep", "600"], detach=True, network=container_name(FACTS),
        volumes=[f"{BUSYBOX}:/busybox:ro"],
    )  # fmt: skip
    try:
        with caplog.at_level(logging.WARNING):
            networks.ensure(FACTS)

        assert there(engine) == [(made_by_one_in_a_container.id, "true")]
        assert "made by a worker of the other kind" in caplog.text
    finally:
        container.remove(force=True)
