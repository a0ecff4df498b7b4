"""Names in a repository are bytes: any that Linux takes is built, and none writes a line of a log or a sentence."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpu_worker.errors import JobFailed
from gpu_worker.git_words import GitWords
from gpu_worker.source import SourceFetcher
from gpu_worker.tree_names import one_line, shown
from tests.gpu_worker.builds import image_content
from tests.gpu_worker.control_plane import ControlPlane
from tests.gpu_worker.images import container_files
from tests.gpu_worker.test_source import NEVER, claim_of, fetch
from tests.gpu_worker.test_source_broken_objects import Store
from tests.gpu_worker.worker import WorkerProcess, eventually, make_repository

ODD = [
    b"caf\xe9.txt",
    b"dir\xff/caf\xe9",
    b"two\nlines",
    b"red\x1b[31m",
    b"back\rwards",
    b'"quoted"',
    b"\xe2\x80\xaeturned",
]
POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'1' * 64}\nsize 12\n"


@pytest.mark.parametrize(
    ("name", "for_people"),
    [
        (b"models/a b.bin", "models/a b.bin"),
        ("模型/é.bin".encode(), "模型/é.bin"),
        ("👩‍🔬.png".encode(), "👩‍🔬.png"),
        (b"caf\xe9.txt", r'"caf\351.txt"'),
        (b"a\nFetching b", r'"a\nFetching b"'),
        (b"\r\x1b[2K\x7f", r'"\r\033[2K\177"'),
        (b'say "a\\b"', r'"say \"a\\b\""'),
        ("\u202etxt.exe".encode(), r'"\342\200\256txt.exe"'),
        ("line\u2028line".encode(), r'"line\342\200\250line"'),
        (b"a" * 300 + b"\n", '"' + "a" * 100 + "…" + "a" * 99 + r'\n"'),
    ],
)
def test_a_name_is_shown_in_one_line_as_git_would_quote_it(name: bytes, for_people: str) -> None:
    assert shown(os.fsdecode(name)) == for_people


def test_what_a_program_says_of_a_name_stays_one_line_and_can_be_sent() -> None:
    said = one_line("cannot read 'caf\udce9\n\x1b[1m\0' \ud800")

    assert said == r"cannot read 'caf\351\n\033[1m\000' \355\240\200"
    assert json.loads(json.dumps(said).encode()).encode().decode() == said


def test_files_of_every_name_arrive(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "odd", {os.fsdecode(name): "content" for name in ODD})

    fetch(claim_of(plane, "odd", revision), tmp_path / "source")

    source = os.fsencode(tmp_path / "source")
    assert {name for name in ODD if os.path.isfile(os.path.join(source, name))} == set(ODD)


def test_a_remark_about_a_file_is_one_line_that_names_it(plane: ControlPlane, tmp_path: Path) -> None:
    names = [b"caf\xe9", b"a\nThe control plane says: all is well"]
    revision = make_repository(plane.git_root, "odd", {os.fsdecode(name): POINTER for name in names})

    lines = fetch(claim_of(plane, "odd", revision), tmp_path / "source").splitlines()

    remark = "looks like a Git LFS pointer, but no .gitattributes says so: it is left as it is."
    assert sorted(line for line in lines if "looks like" in line) == [
        rf'"a\nThe control plane says: all is well" {remark}',
        rf'"caf\351" {remark}',
    ]
    assert not any(line.startswith("The control plane says") for line in lines)


def test_what_git_says_of_a_name_is_marked_as_git_s_and_changes_no_line(plane: ControlPlane, tmp_path: Path) -> None:
    """One that is too long for a disk: git says it as it is."""
    store, said = Store(plane), list[bytes]()
    name = b"red\x1b[31m\r\nThe control plane says: all is well " + b"x" * 300
    revision = store.commit(b"100644 " + name + b"\0" + store.blob)
    with pytest.raises(JobFailed) as failure:
        SourceFetcher().fetch(claim_of(plane, "hello", revision), tmp_path / "source", output=said.append, cancel=NEVER)

    first, *lines = b"".join(said).decode().splitlines()

    assert first.startswith("Fetching alice/hello at ")
    assert any("all is well" in line for line in lines)
    assert all(line.startswith("git: ") and line.isprintable() for line in lines)
    assert failure.value.reason == "source_failed" and failure.value.detail.isprintable()


def test_a_line_of_git_s_is_whole_however_it_arrives_and_never_too_long() -> None:
    told = list[bytes]()
    words = GitWords(told.append)

    for piece in (b"fatal: caf\xc3", b"\xa9\x1b[2K\n\n10%\r20%\r", b"y" * 5000, b"\nlast"):
        words.hear(piece)
    words.end()

    lines = b"".join(told).decode().splitlines()
    assert lines[0] == "git: fatal: café\\033[2K"
    assert lines[1:3] == ["git: 10%", "git: 20%"]
    assert [len(line) for line in lines[3:5]] == [5 + 4096, 5 + 904]
    assert lines[5:] == ["git: last"]


def test_remarks_without_end_are_counted(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "odd", {f"{number:02}.txt": POINTER for number in range(23)})

    lines = fetch(claim_of(plane, "odd", revision), tmp_path / "source").splitlines()

    assert [line.split(" ")[0] for line in lines if "looks like" in line] == [f"{n:02}.txt" for n in range(20)]
    assert "… and 3 more like this." in lines


@pytest.mark.docker
def test_a_space_with_files_of_every_name_is_built_and_runs_and_its_log_is_delivered(
    plane: ControlPlane, make_worker: Callable[..., WorkerProcess]
) -> None:
    dockerfile = str(container_files()["Dockerfile"]).replace("EXPOSE", "COPY . /app/\nEXPOSE")
    files = {**container_files(Dockerfile=dockerfile), **{os.fsdecode(name): POINTER for name in ODD}}
    worker = make_worker(executor="docker").start()

    job = plane.queue_job("odd", make_repository(plane.git_root, "odd", files))

    eventually(lambda: plane.state(job) in ("running", "failed"), seconds=120, what="running")
    lease = plane.lease_of(job)
    assert lease is not None
    assert lease.state == "running", (lease.events, lease.logs, worker)
    log = lease.logs["build"].splitlines()
    assert len([line for line in log if "looks like a Git LFS pointer" in line]) == len(ODD)
    there = {os.fsencode(name) for name, _ in image_content(lease.events[-1]["image_id"])}
    assert {b"app/" + name for name in ODD} <= there
