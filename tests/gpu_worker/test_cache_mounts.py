"""What a build keeps in cache mounts is its repository's alone: it can neither read nor poison another's."""

from __future__ import annotations

import hashlib
import sys
import threading
from pathlib import Path

import pytest

from gpu_worker.build_key import FILE_NAME, BuildKey
from gpu_worker.cache_mounts import separated
from gpu_worker.errors import JobFailed
from gpu_worker.images import BuildPlan, BuildTool, ImageBuilder
from gpu_worker.protocol import Claim
from tests.gpu_worker.builds import KEY, Build, claim, write
from tests.gpu_worker.images import BUSYBOX

STEPS = """\
FROM scratch
COPY busybox /bin/busybox
COPY mark /mark
RUN --mount=type=cache,target=/cache ["/bin/busybox", "sh", "-c", \\
    "echo seen: $(/bin/busybox cat /cache/* 2>/dev/null); /bin/busybox cp /mark /cache/{name}"]
"""


OLDER = "# syntax=docker/dockerfile:1.0-experimental\n"
# What only tells of cache mounts: no instruction, or none that has one.
TELLING = """\
FROM scratch
# RUN --mount=type=cache,target=/a x
RUN echo "--mount=type=cache,target=/a" --mount=type=bind
LABEL how="RUN --mount=type=cache,target=/a x"
COPY <<EOF <<-'TWO' /scripts/\r
RUN-LIKE --mount=type=cache,target=/a\r
\tTWO
EOF
 \tmixed --mount=type=cache\t
\tTWO
RUN <<"EOF" cat
pip --mount=type=cache,target=/a \\
EOF
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("RUN --mount=type=cache,target=/a x", "RUN --mount=type=cache,target=/a,id=n-/a x"),
        ("RUN --mount=target=/a,type=cache x", "RUN --mount=target=/a,type=cache,id=n-/a x"),
        ("RUN --mount=type=cache,id=pip,dst=/a x", "RUN --mount=type=cache,id=n-pip,dst=/a x"),
        ("run --MOUNT=type=cache,target=$H/a \\\n x", "run --mount=type=cache,target=$H/a,id=n-$H/a \\\n x"),
        ("onbuild run --mount=type=cache,id=a x", "onbuild run --mount=type=cache,id=n-a x"),
        (
            "RUN --mount=type=secret,id=k --mount=type=cache,target=/a x",
            "RUN --mount=type=secret,id=k --mount=type=cache,target=/a,id=n-/a x",
        ),
        (
            "RUN \\\r\n  --network=none \\\r\n --mount=type=cache,id=a --security=x y",
            "RUN \\\r\n  --network=none \\\r\n --mount=type=cache,id=n-a --security=x y",
        ),
        ("RUN --mount=type=cache,\\\n target=/a x", "RUN --mount=id=n-1,type=cache,\\\n target=/a x"),
        ("RUN --mount=type=secret,id=cache x", "RUN --mount=type=secret,id=cache x"),
        ("RUN --mount=type=bind,target=/type=cache x", "RUN --mount=type=bind,target=/type=cache x"),
    ],
)
def test_each_cache_mount_gets_an_id_of_its_own_where_an_older_program_reads(before: str, after: str) -> None:
    assert separated(OLDER + before, "n") == OLDER + after


@pytest.mark.parametrize(
    "syntax",
    [
        "",
        "# syntax=docker/dockerfile:1\n",
        "# syntax = docker/dockerfile:1.7-labs\n",
        "#syntax=docker.io/docker/dockerfile:1.4.0\n",
        "# syntax=docker/dockerfile-upstream:master\n",
    ],
)
def test_nothing_is_changed_for_a_reader_that_keeps_them_apart_itself(syntax: str) -> None:
    written = (
        syntax + TELLING + "RUN --mount=type=cache,target=/a x\nCOPY <<E /a\nRUN --mount=type=cache,target=/a x\nE\n"
    )

    assert separated(written, "n") == written


@pytest.mark.parametrize("syntax", [OLDER, f"# syntax=docker/dockerfile:1.7@sha256:{'0' * 64}\n"])
def test_what_only_tells_of_a_cache_mount_arrives_byte_for_byte(syntax: str) -> None:
    assert separated(f"{syntax}{TELLING}", "n") == f"{syntax}{TELLING}"
    mount = "RUN --mount=type=cache,target=/a,id=n-/a x\n"  # and after it the next instruction is seen again
    assert separated(f"{syntax}{TELLING}RUN --mount=type=cache,target=/a x\n", "n") == f"{syntax}{TELLING}{mount}"


@pytest.mark.parametrize(
    "step",
    [
        'RUN --mount="type=cache,target=/a" x',
        'RUN --mount=type="cache",target=/a x',
        "RUN --mount=type=ca\\che,target=/a x",
        "RUN --mount=type=ca\\\nche,target=/a x",
        "RUN --mou\\\n# a remark\nnt=type=cache,target=/a x",
        "RUN --mount=type=$KIND,target=/a x",
        'RUN --mount=type=cache,target=/a,id=a,"id"=pip x',
        'RUN --network="a b" --mount="type=cache",target=/a x',
        "RUN cat <<EOF\nRUN --mount=type=cache,id=pip,target=/a x \\\nEOF",
        "RUN cat <<#\nRUN --mount=type=cache,id=pip,target=/a x\n#",
        'COPY <<"RUN x" /a\nRUN --mount=type=cache,id=pip,target=/a x\nRUN x',
    ],
)
@pytest.mark.parametrize("version", ["1.1", "experimental", f"1.7@sha256:{'0' * 64}"])
def test_what_leaves_a_doubt_is_refused_where_an_older_program_may_read(step: str, version: str) -> None:
    with pytest.raises(JobFailed) as failure:
        separated(f"# syntax=docker/dockerfile:{version}\nFROM scratch\n{step}\n", "n")

    assert failure.value.reason == "syntax_refused"
    assert failure.value.detail.startswith(f"The Dockerfile is to be read by docker/dockerfile:{version} (its line")
    assert failure.value.detail.endswith("Name docker/dockerfile:1 there, without a digest.")


# Stands for docker: keeps what it is given to build.
DOCKER = """#!{python}
import os, shutil, sys
named = dict(word.split("=", 1) for word in sys.argv[1:] if word.startswith("--") and "=" in word)
shutil.copyfile(named["--file"], {kept!r})
beside = named["--file"] + ".dockerignore"
open({kept!r} + ".ignored", "w").write(open(beside).read() if os.path.exists(beside) else "nothing")
open(named["--iidfile"], "w").write("sha256:1")
"""


def handed_over(source: Path, job: Claim, directory: Path) -> Path:
    """Build it with a program that only keeps what it is given: the Dockerfile's copy."""
    docker, kept = directory / "docker", directory / "kept"
    docker.write_text(DOCKER.format(python=sys.executable, kept=str(kept)))
    docker.chmod(0o755)
    ImageBuilder(BuildTool(str(docker), ("build",), {}, "1"), key=KEY).build(
        BuildPlan("inputs", dockerfile=source / "Dockerfile"), job, source,
        labels={}, output=lambda data: None, cancel=threading.Event(), started=lambda identity: None,
    )  # fmt: skip
    return kept


@pytest.mark.parametrize("syntax", [b"", OLDER.encode()], ids=["not changed", "changed"])
def test_the_dockerfile_that_is_built_has_the_bytes_of_the_repository_s(tmp_path: Path, syntax: bytes) -> None:
    written = syntax + b"FROM scratch\r\nLABEL a=caf\xe9 \x00\rb\r\nCOPY <<E /a\r\ncaf\xe9\r\nE\r\n%s x\r\n"
    source = write(tmp_path / "source", {"Dockerfile": written % b"RUN --mount=type=cache,id=a"})
    job = claim()

    kept = handed_over(source, job, tmp_path)

    namespace = KEY.name_of(job.repository_id)
    mount = f"RUN --mount=type=cache,id={namespace}-a" if syntax else "RUN --mount=type=cache,id=a"
    assert kept.read_bytes() == written % mount.encode()


def test_the_list_of_what_to_leave_out_goes_along_unless_it_is_a_file_of_the_machine(tmp_path: Path) -> None:
    dockerfile = f"{OLDER}FROM scratch\nRUN --mount=type=cache,target=/a x\n"
    source = write(tmp_path / "source", {"Dockerfile": dockerfile, "Dockerfile.dockerignore": "*.log\n"})
    ignored = tmp_path / "kept.ignored"

    handed_over(source, claim(), tmp_path)
    assert ignored.read_text() == "*.log\n"

    (source / "Dockerfile.dockerignore").unlink()
    (source / "Dockerfile.dockerignore").symlink_to("/etc/passwd")
    handed_over(source, claim(), tmp_path)
    assert ignored.read_text() == "nothing"


def test_the_name_of_a_repository_is_the_same_for_one_worker_and_nobody_elses_to_guess(tmp_path: Path) -> None:
    name = BuildKey(tmp_path / "one").name_of("7")

    assert BuildKey(tmp_path / "one").name_of("7") == name
    assert len({name, BuildKey(tmp_path / "one").name_of("8"), BuildKey(tmp_path / "two").name_of("7")}) == 3
    assert (tmp_path / "one" / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_where_it_cannot_be_kept_builds_go_on_with_one_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    key = BuildKey(tmp_path / "file")  # no directory, so nothing can be written there

    assert key.name_of("7") == key.name_of("7") != BuildKey(tmp_path / "file").name_of("7")


def log_of(job: Claim, name: str, directory: Path, steps: str = STEPS) -> str:
    source = directory / name / "source"
    files: dict[str, str | bytes] = {
        "Dockerfile": steps.format(name=name),
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
def test_another_repository_s_cache_is_not_had_by_an_id_that_was_made_for_it(tmp_path: Path) -> None:
    """What could be known of the other repository are its id and how names were made of it."""
    mine, others = claim(), claim()
    known = hashlib.sha256(mine.repository_id.encode()).hexdigest()
    log_of(mine, "one", tmp_path)

    for place, name in enumerate((known[:16], known[:32], mine.repository_id)):
        steps = STEPS.replace("target=/cache", f"id=../{name}//cache,target=/cache")
        foreign = log_of(others, f"foreign-{place}", tmp_path, steps)
        assert "by one" not in foreign

    assert "by one" in log_of(mine, "two", tmp_path)


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
