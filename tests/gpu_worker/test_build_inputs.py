"""Variables reach a build as arguments and secrets as files; of a secret's value nothing stays behind."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import docker
import pytest

from tests.gpu_worker.builds import Build, claim, image_content, write
from tests.gpu_worker.images import container_files

pytestmark = pytest.mark.docker

DOCKERFILE = """\
FROM scratch
COPY busybox /bin/busybox
RUN ["/bin/busybox", "--install", "-s", "/bin"]
ARG GREETING=none
ENV UNIQUE={unique}
RUN --mount=type=secret,id=KEY ["/bin/sh", "-c", "wc -c < /run/secrets/KEY > /size; ls -l /run/secrets/KEY"]
RUN ["/bin/sh", "-c", "echo $GREETING > /greeting; ls /run/secrets > /left 2>&1; env > /variables"]
"""


@pytest.fixture
def build(tmp_path: Path) -> Iterator[Callable[..., Build]]:
    made: list[Build] = []

    def make(**wishes: dict[str, str]) -> Build:
        # Unique, or the engine's cache answers for an earlier run of this test.
        files = container_files(Dockerfile=DOCKERFILE.format(unique=uuid.uuid4()))
        made.append(Build(claim(**wishes), write(tmp_path, files)))
        return made[-1]

    yield make
    for one in made:
        one.forget()


def test_a_secret_is_there_in_its_step_and_nowhere_afterwards(build: Callable[..., Build]) -> None:
    value = f"value-{uuid.uuid4().hex}"
    one = build(secrets={"KEY": value}, build_args={"GREETING": "hello-you"})

    image_id = one.run()

    forms = [value.encode(), base64.b64encode(value.encode())]
    said = one.log.encode() + b"".join(history(image_id))
    assert not any(form in said for form in forms)
    everything = list(image_content(image_id))
    assert not [name for name, content in everything if any(form in content for form in forms)]
    assert "size" in [name for name, _ in everything]
    assert any(b"hello-you" in content for _, content in everything)  # the look does see what is there


def test_the_same_build_has_the_labels_of_its_maker(build: Callable[..., Build]) -> None:
    one = build()
    one.claim = claim(secrets={"KEY": "some value"})

    image_id = one.run()

    engine = docker.from_env()
    try:
        assert engine.images.get(image_id).labels == {"openface.worker": one.mark}
    finally:
        engine.close()


def history(image_id: str) -> list[bytes]:
    """As `docker history --no-trunc` tells it."""
    engine = docker.from_env()
    try:
        return [str(layer).encode() for layer in engine.images.get(image_id).history()]
    finally:
        engine.close()
