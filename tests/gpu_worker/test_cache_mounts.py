"""What a build keeps in cache mounts is its repository's alone: it can neither read nor poison another's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpu_worker.cache_mounts import separated
from gpu_worker.protocol import Claim
from tests.gpu_worker.builds import Build, claim, write
from tests.gpu_worker.images import BUSYBOX

STEPS = """\
FROM scratch
COPY busybox /bin/busybox
COPY mark /mark
RUN --mount=type=cache,target=/cache ["/bin/busybox", "sh", "-c", \\
    "echo seen: $(/bin/busybox cat /cache/* 2>/dev/null); /bin/busybox cp /mark /cache/{name}"]
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("RUN --mount=type=cache,target=/a x", "RUN --mount=type=cache,target=/a,id=n-/a x"),
        ("RUN --mount=target=/a,type=cache x", "RUN --mount=target=/a,type=cache,id=n-/a x"),
        ("RUN --mount=type=cache,id=pip,dst=/a x", "RUN --mount=type=cache,id=n-pip,dst=/a x"),
        ("run --MOUNT=type=cache,target=$H/a \\\n x", "run --mount=type=cache,target=$H/a,id=n-$H/a \\\n x"),
        (
            "RUN --mount=type=secret,id=k --mount=type=cache,target=/a x",
            "RUN --mount=type=secret,id=k --mount=type=cache,target=/a,id=n-/a x",
        ),
        ("RUN --mount=type=cache,\\\n target=/a x", "RUN --mount=id=n-1,type=cache,\\\n target=/a x"),
        ("RUN --mount=type=secret,id=cache x", "RUN --mount=type=secret,id=cache x"),
        ("RUN --mount=type=bind,target=/type=cache x", "RUN --mount=type=bind,target=/type=cache x"),
    ],
)
def test_each_cache_mount_gets_an_id_of_its_own(before: str, after: str) -> None:
    assert separated(before, "n") == after


def log_of(job: Claim, name: str, directory: Path) -> str:
    source = directory / name / "source"
    files: dict[str, str | bytes] = {
        "Dockerfile": STEPS.format(name=name),
        "busybox": BUSYBOX.read_bytes(),
        "mark": f"by {name}",
    }
    build = Build(job, write(source, {**files, "Dockerfile.dockerignore": "left-out"}))
    try:
        build.run()
    finally:
        build.forget()
    return next(line for line in build.log.splitlines() if "seen:" in line and "RUN" not in line)


@pytest.mark.docker
def test_a_cache_mount_lasts_for_a_repository_and_is_empty_for_another(tmp_path: Path) -> None:
    mine, others = claim(), claim()

    first = log_of(mine, "one", tmp_path)
    second = log_of(mine, "two", tmp_path)
    foreign = log_of(others, "three", tmp_path)

    assert first.rstrip().endswith("seen:")
    assert "by one" in second
    assert foreign.rstrip().endswith("seen:")


FETCHES = """\
FROM scratch
COPY busybox /bin/busybox
RUN --mount={mount},id=TOKEN ["/bin/busybox", "sh", "-c", "/bin/busybox cp /run/secrets/TOKEN /fetched || :"]
RUN ["/bin/busybox", "sh", "-c", "echo here: $(/bin/busybox cat /fetched 2>/dev/null)"]
"""


@pytest.mark.docker
@pytest.mark.parametrize(
    "mount", ["type=secret", 'type="secret"', "type=\\ \nsecret"], ids=["plain", "quoted", "split"]
)
def test_what_a_step_made_of_a_secret_is_not_handed_to_another_space_by_its_words(tmp_path: Path, mount: str) -> None:
    def said(job: Claim, name: str, mount: str = "type=secret") -> str:
        source = write(
            tmp_path / name / "source",
            {"Dockerfile": FETCHES.replace("{mount}", mount), "busybox": BUSYBOX.read_bytes()},
        )
        build = Build(job, source)
        try:
            build.run()
        finally:
            build.forget()
        return next(line for line in build.log.splitlines() if "here:" in line and "RUN" not in line)

    assert "very-private-model" in said(claim(secrets={"TOKEN": "very-private-model"}), "mine")
    assert said(claim(), "theirs", mount).rstrip().endswith("here:")
