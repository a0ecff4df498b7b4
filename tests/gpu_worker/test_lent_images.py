"""A build sees the images of registries, its own and those that the owner lends: nobody else's."""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpu_worker.build_settings import load
from gpu_worker.containers.image_store import ImageStore
from gpu_worker.errors import ConfigError, JobFailed
from gpu_worker.lent_images import Lender, LocalImage, NamedImages, plain_name
from tests.gpu_worker.builds import Build, claim, write
from tests.gpu_worker.images import BUSYBOX

HERE = {
    "owner/private": LocalImage("", fetched=False),
    "python:3.11": LocalImage("", fetched=True),
    "openface/7:abc": LocalImage("7", fetched=False),
    "openface/8:abc": LocalImage("8", fetched=True),
    "base": LocalImage("", fetched=False),
}


def find(name: str) -> LocalImage | None:
    return next((image for known, image in HERE.items() if plain_name(known) == plain_name(name)), None)


def refused(dockerfile: str, *lent: str) -> str | None:
    """The reason why the repository 7 may not build this."""
    try:
        NamedImages(Lender(find, lent), "7").read(dockerfile, {"GIVEN": "owner/private"})
    except JobFailed as failure:
        return failure.reason
    return None


@pytest.mark.parametrize(
    ("dockerfile", "reason"),
    [
        ("FROM scratch\n", None),
        ("FROM python:3.11\n", None),
        ("FROM ghcr.io/somebody/not-here\n", None),
        ("FROM openface/7:abc\n", None),
        ("FROM owner/private\n", "image_not_lent"),
        ("FROM docker.io/owner/private:latest\n", "image_not_lent"),
        ("from \\\n  --platform=linux/amd64 owner/private AS mine\n", "image_not_lent"),
        ("FROM openface/8:abc\n", "image_not_lent"),
        ("FROM scratch\nCOPY --chown=1 --from=owner/private /a /a\n", "image_not_lent"),
        ("FROM python:3.11\nRUN --mount=type=bind,from=owner/private,target=/m true\n", "image_not_lent"),
        ("FROM python:3.11\nONBUILD COPY --from=owner/private /a /a\n", "image_not_lent"),
        ("FROM python:3.11 AS tools\nFROM Tools\nCOPY --from=tools /a /a\nCOPY --from=0 /b /b\n", None),
        ("FROM python:3.11 AS one-$TARGETARCH\nFROM one-${TARGETARCH}\n", None),
        ("\ufeffFROM owner/private\n", "image_not_lent"),
        ("ARG X=owner/private\nFROM $X\n", "image_not_lent"),
        ("ARG A=owner B='/pri'\nARG C=${B}vate\nFROM ${A}$C\n", "image_not_lent"),
        ("ARG X\nFROM ${X:-owner/private}\n", "image_not_lent"),
        ('ARG A="a b" X=owner/private\nFROM $X\n', "image_not_lent"),
        ("ARG GIVEN=python:3.11\nFROM ${GIVEN}\n", "image_not_lent"),
        ("ARG X=owner/privateX\nFROM ${X%X}\n", "image_not_lent"),  # nobody could tell
        ("ARG X=$X$X\nFROM $X\n", "image_not_lent"),
        ("FROM owner/private\nRUN x\nFROM scratch AS owner/private\n", "image_not_lent"),
        ("FROM scratch\nCOPY --from=owner/pri\\ \nvate /a /a\n", "image_not_lent"),
        ("FROM scratch\nCOPY --from=owner/pri\\\n# hello\n\nvate /a /a\n", "image_not_lent"),
        ("FROM scratch\nCOPY --from=owner/pri\\\n   \nvate /a /a\n", "image_not_lent"),
        ("FROM scratch\nCOPY --fr\\ \nom=owner/private /a /a\n", "image_not_lent"),
        (
            "FROM scratch\nRUN echo \\\n# x\nFROM y AS owner/private\nCOPY --from=owner/private /a /a\n",
            "image_not_lent",
        ),
        ("# a=b\x0cc\n# syntax=somebody/frontend\nFROM scratch\n", "syntax_refused"),
        ('{"syntax": "somebody/frontend"}', "syntax_refused"),
        ("#!/x\n\n# syntax=somebody/frontend\nFROM scratch\n", "syntax_refused"),
        ('FROM python:3.11\nRUN curl "http://x/?from=$(date +%s)&a=${b%c}" --from=${HOME#/}\n', None),
        ("ARG A=reg B=org C=name D=1\nFROM ${A}/${B}/${C}:${D}\n", None),
        ("FROM python:3.11 AS base\nCOPY --from=base /a /a\n", "image_not_lent"),  # a name that the owner's image has
        ('FROM scratch\nCOPY --from="owner/private" /a /a\n', "image_not_lent"),
        ("FROM scratch\nCOPY --from=owner/pri\\vate /a /a\n", "image_not_lent"),
        ('FROM scratch\nRUN --mount=type=bind,"from=owner/private",target=/m true\n', "image_not_lent"),
        ("# escape=`\nFROM scratch\nCOPY --from=owner/pri`\nvate /a /a\n", "image_not_lent"),
        ("# escape=`\nCMD echo `\nFROM x AS owner/private\nCOPY --from=owner/private /a /a\n", "image_not_lent"),
        ("FROM scratch\nRUN <<EOF\n# syntax = proto3\nEOF\n", None),
        ("# syntax=docker/dockerfile:1\nFROM scratch\n", None),
        ("# syntax = docker.io/docker/dockerfile-upstream:1.5-labs\nFROM scratch\n", None),
        ("#syntax=somebody/frontend\nFROM scratch\n", "syntax_refused"),
        ("// syntax=somebody/frontend:1\nFROM scratch\n", "syntax_refused"),
    ],
)
def test_the_names_that_a_dockerfile_says_are_judged(dockerfile: str, reason: str | None) -> None:
    assert refused(dockerfile) == reason


@pytest.mark.timeout(20)
@pytest.mark.parametrize("line", ["ARG {}", "FROM {}", "FROM ${{{}", "COPY --from={}$", "# syntax{}", "RUN {}\\"])
@pytest.mark.parametrize("filling", ["a", " ", "\\", "$a", "${a", "a="])
def test_a_line_without_end_stops_nobody(line: str, filling: str) -> None:
    refused(line.format(filling * (500_000 // len(filling))))


def test_a_name_in_a_sentence_is_shown_as_what_it_is() -> None:
    for dockerfile in ("# syntax=somebody/\x1b[2Jx\nFROM scratch\n", "FROM somebody/${\x1b[2J%x}\n"):
        with pytest.raises(JobFailed) as failure:
            NamedImages(Lender(find), "7").read(dockerfile, {})
        assert r"somebody/" in failure.value.detail
        assert r"\033[2J" in failure.value.detail
        assert failure.value.detail.isprintable()


@pytest.mark.parametrize("lent", ["owner/private", "owner/private:latest", "owner/*", "*"])
def test_what_the_owner_lends_may_be_used(lent: str) -> None:
    assert refused("FROM owner/private\n", lent) is None


def test_names_that_only_buildkit_knows_are_judged_as_it_tells_them() -> None:
    named = NamedImages(Lender(find), "7")
    named.hear(b"#1 [internal] load build definition from Dockerfile\n#3 [internal] load metadata for docker.io/libr")
    named.hear(b"ary/python:3.11\n#5 0.2 #3 [internal] load metadata for docker.io/owner/private:latest\n")

    with pytest.raises(JobFailed, match=r"The image owner/private:latest is on this worker's machine only"):
        named.hear(b"#4 [linux/amd64 internal] load metadata for docker.io/owner/private:latest\r\n")
    with pytest.raises(JobFailed, match="read by somebody/frontend:1"):
        named.hear(b"#2 resolve image config for docker-image://docker.io/somebody/frontend:1\n")


def test_the_setting_is_a_list_of_names_and_patterns() -> None:
    settings = load({"LENT_IMAGES": "cuda-*, owner/private:2  base"}, base_image="local/python:3.11")

    assert settings.lent_images == ("cuda-*", "owner/private:2", "base", "local/python:3.11", "local/python:3.11")
    with pytest.raises(ConfigError, match="LENT_IMAGES names '-x'"):
        load({"LENT_IMAGES": "-x"}, base_image="")


# --- real builds -----------------------------------------------------------------------------------------------------


@pytest.fixture
def private(tmp_path: Path) -> Iterator[str]:
    """An image that this machine's owner has built for himself."""
    name = f"private-{uuid.uuid4().hex[:12]}"
    folder = write(
        tmp_path / "private", {"Dockerfile": "FROM scratch\nCOPY busybox /bin/busybox\nCOPY busybox /notes\n"}
    )
    write(folder, {"busybox": BUSYBOX.read_bytes()})
    subprocess.run(
        ["docker", "build", "-q", "-t", name, str(folder)], env={"PATH": "/usr/bin:/bin", "DOCKER_BUILDKIT": "1"},
        check=True, capture_output=True,
    )  # fmt: skip
    yield name
    subprocess.run(["docker", "rmi", name], check=True, capture_output=True)


def build(source: Path, *lent: str) -> tuple[str, str]:
    """Build the Dockerfile of a Space; the image's id and the log. Nothing of it stays."""
    job = Build(claim(build_args={"WHICH": "nothing"}), source, lender=Lender(ImageStore("w").find_local, lent))
    try:
        return job.run(), job.log
    finally:
        job.forget()


@pytest.mark.docker
@pytest.mark.parametrize(
    "dockerfile",
    [
        "FROM {name}\n",
        "FROM scratch\nCOPY --from={name} /notes /notes\n",
        'FROM scratch\nCOPY --from="{name}" /notes /notes\n',
        "ARG LAST={last}\nFROM {first}${{LAST}}\n",
        "ARG LAST={last}\nFROM {first}${{LAST}} AS one\nFROM scratch\nCOPY --from=one /notes /notes\n",
    ],
)
def test_an_image_of_the_owner_s_is_not_for_spaces_however_it_is_named(
    private: str, tmp_path: Path, dockerfile: str
) -> None:
    text = dockerfile.format(name=private, first=private[:-1], last=private[-1])

    with pytest.raises(JobFailed) as failure:
        build(write(tmp_path / "job" / "source", {"Dockerfile": text}))

    assert failure.value.reason == "image_not_lent"
    assert private in failure.value.detail


@pytest.mark.docker
def test_an_image_that_the_owner_lends_is_built_upon(private: str, tmp_path: Path) -> None:
    source = write(tmp_path / "job" / "source", {"Dockerfile": f'FROM {private}\nRUN ["/bin/busybox", "true"]\n'})

    built, log = build(source, private)

    assert built.startswith("sha256:")
    assert "openface/" not in log, "nobody learns a name that another build could ask for"
