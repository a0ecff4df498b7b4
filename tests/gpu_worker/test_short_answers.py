"""Programs run beside an app, and trials of a GPU: what an image's own program says, or never says, costs little."""

from __future__ import annotations

import io
import tarfile
import uuid
from collections.abc import Iterator
from typing import Any

import docker
import pytest

from gpu_worker.containers import gpu_trial, runtime
from gpu_worker.containers.connection import Connection
from gpu_worker.containers.gpu_trial import GpuTrial
from gpu_worker.containers.labels import ROLE_LABEL, WORKER_LABEL
from gpu_worker.containers.networks import JobNetworks
from gpu_worker.containers.runtime import ContainerRuntime
from gpu_worker.gpu_sight import Sight, judge
from tests.gpu_worker.images import BUSYBOX
from tests.gpu_worker.test_journal import FACTS

pytestmark = pytest.mark.docker


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def image(engine: Any) -> Iterator[str]:
    """Busybox alone."""
    name = f"openface-tests/short-answers:{uuid.uuid4().hex[:8]}"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        archive.add(BUSYBOX, "bin/busybox")
    engine.api.import_image_from_data(packed.getvalue(), repository=name)
    yield name
    engine.images.remove(name, force=True)


@pytest.fixture(scope="module")
def beside(engine: Any, image: str) -> Iterator[ContainerRuntime]:
    container = engine.containers.run(image, ["/bin/busybox", "sleep", "600"], detach=True, network_mode="none")
    connection = Connection()
    yield ContainerRuntime(connection, JobNetworks(connection, "nobody"), container, FACTS)
    connection().close()
    container.remove(force=True, v=True)


def test_a_program_that_ends_says_all(beside: ContainerRuntime) -> None:
    assert beside.execute(["/bin/busybox", "sh", "-c", "echo here; exit 3"]) == (3, b"here\n")


def test_a_program_that_prints_for_ever_is_cut_and_nothing_is_known(beside: ContainerRuntime) -> None:
    code, output = beside.execute(["/bin/busybox", "yes", "GPU 0: A (UUID: GPU-1)"])

    assert (code, len(output)) == (None, runtime.EXECUTE_BYTES)
    assert judge(code, output) is Sight.UNKNOWN


@pytest.mark.parametrize("says", ["sleep 300", "while sleep 0.1; do echo .; done"])
def test_a_program_that_does_not_end_is_not_waited_for(
    beside: ContainerRuntime, monkeypatch: pytest.MonkeyPatch, says: str
) -> None:
    monkeypatch.setattr(runtime, "EXECUTE_SECONDS", 0.5)

    code, _ = beside.execute(["/bin/busybox", "sh", "-c", says.replace("sleep", "busybox sleep")])

    assert code is None
    monkeypatch.undo()
    assert beside.execute(["/bin/busybox", "true"]) == (0, b""), "the engine still answers this thread"


def test_a_trial_with_no_image_of_its_own_does_not_take_a_spaces(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_trial, "LIKELY", ("openface-tests/nowhere:1",))

    connection = Connection()
    assert GpuTrial(connection).image(None) is None
    connection().close()


def test_what_a_killed_doctor_left_goes_with_the_next_trial_of_the_same_worker(
    engine: Any, image: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_trial, "STALE_SECONDS", -60)
    mine, other = uuid.uuid4().hex, uuid.uuid4().hex
    left = {
        worker: engine.containers.create(
            image, ["/bin/busybox", "true"], labels={ROLE_LABEL: gpu_trial.TRIAL, WORKER_LABEL: worker}
        )
        for worker in (mine, other)
    }
    try:
        connection = Connection()
        GpuTrial(connection, worker_id=mine)._remove_stale()
        connection().close()

        names = {
            one.id for one in engine.containers.list(all=True, filters={"label": f"{ROLE_LABEL}={gpu_trial.TRIAL}"})
        }
        assert (left[mine].id in names, left[other].id in names) == (False, True)
    finally:
        for container in engine.containers.list(all=True, filters={"label": f"{ROLE_LABEL}={gpu_trial.TRIAL}"}):
            if container.labels.get(WORKER_LABEL) in (mine, other):
                container.remove(force=True)
