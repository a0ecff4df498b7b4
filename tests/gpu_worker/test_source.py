"""The source arrives at exactly the claimed commit, and the token that fetches it stays out of sight."""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import os
import socket
import threading
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from gpu_worker.errors import JobFailed, JobInterrupted
from gpu_worker.git import Access, environment
from gpu_worker.protocol import Claim
from gpu_worker.source import SourceFetcher
from tests.gpu_worker.control_plane import ControlPlane, Lease
from tests.gpu_worker.schemas import golden
from tests.gpu_worker.worker import eventually, git, make_repository

NEVER = threading.Event()


def claim_of(plane: ControlPlane, repo: str, revision: str) -> Claim:
    """A claim whose source token the control plane's git accepts."""
    plane.queue_job(repo, revision)
    status, answer = plane.claim(revision, {"free_slots": {"cpu": 1}})
    assert (status, isinstance(answer, dict)) == (200, True)
    assert isinstance(plane.lease_of(str(answer and answer["id"])), Lease)
    return Claim.read(answer)


def fetch(claim: Claim, directory: Path) -> str:
    output: list[bytes] = []
    SourceFetcher().fetch(claim, directory, output=output.append, cancel=NEVER)
    return b"".join(output).decode()


def command_lines() -> list[str]:
    """The arguments of every process of this machine, as `ps` shows them to anybody."""
    lines = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # ended meanwhile
            lines.append(entry.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
    return lines


def test_the_tree_is_that_of_the_commit(plane: ControlPlane, tmp_path: Path) -> None:
    first = make_repository(plane.git_root, "hello", {"app.py": "1", "old.txt": "old"})
    make_repository(plane.git_root, "hello", {"app.py": "2"})

    fetch(claim_of(plane, "hello", first), tmp_path / "source")

    assert (tmp_path / "source" / "app.py").read_text() == "1"
    assert sorted(os.listdir(tmp_path / "source")) == ["app.py", "old.txt"]


def test_a_commit_that_left_its_branch_is_found_while_the_server_has_it(plane: ControlPlane, tmp_path: Path) -> None:
    first = make_repository(plane.git_root, "hello", {"app.py": "1"})
    git("commit", "--amend", "--quiet", "--message", "Again", directory=plane.git_root / "work" / "hello")
    make_repository(plane.git_root, "hello", {"app.py": "2"})

    fetch(claim_of(plane, "hello", first), tmp_path / "source")

    assert (tmp_path / "source" / "app.py").read_text() == "1"


def test_a_commit_that_is_gone_is_named(plane: ControlPlane, tmp_path: Path) -> None:
    newest = make_repository(plane.git_root, "hello", {"app.py": "1"})
    gone = "0123456789" * 4

    with pytest.raises(
        JobFailed, match=f"Commit {gone} no longer exists in alice/hello; the newest is {newest}"
    ) as failure:
        fetch(claim_of(plane, "hello", gone), tmp_path / "source")
    assert failure.value.reason == "commit_gone"


def test_the_token_is_in_no_file_and_no_output(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": "1"})
    claim = claim_of(plane, "hello", revision)

    output = fetch(claim, tmp_path / "source")

    assert claim.source_token not in output
    for file in tmp_path.rglob("*"):
        if file.is_file() and "git" not in file.relative_to(tmp_path).parts[:1]:
            assert claim.source_token.encode() not in file.read_bytes()


def test_no_process_s_arguments_show_the_token_while_git_fetches(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": "1"})
    claim = claim_of(plane, "hello", revision)
    forms = [claim.source_token, base64.b64encode(f"lease:{claim.source_token}".encode()).decode()]
    plane.deaf.set()  # git waits for its answer while we look
    fetching = threading.Thread(target=fetch, args=(claim, tmp_path / "source"))
    fetching.start()
    try:
        arguments = eventually(lambda: [one for one in command_lines() if claim.clone_url in one], what="git's fetch")
        written = [file.read_text() for file in tmp_path.glob("source.git/*/config")]
    finally:
        plane.deaf.clear()
        fetching.join()

    assert any("remote-http" in one for one in arguments)
    for form in forms:
        assert not any(form in one for one in [*arguments, *written])
    assert written
    assert (tmp_path / "source" / "app.py").read_text() == "1"


def test_a_refused_token_fails_the_job_without_showing_it(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": "1"})
    claim = claim_of(plane, "hello", revision)
    plane.leases[claim.lease].released = True

    with pytest.raises(JobFailed) as failure:
        fetch(claim, tmp_path / "source")
    assert failure.value.reason == "source_failed"
    assert claim.source_token not in failure.value.detail


def test_a_redirect_is_not_followed_with_the_token() -> None:
    claim = Claim.read(golden("claim.response")["full"])
    access = Access(claim.clone_url, "lease", claim.source_token)
    settings = environment(Path("/nowhere/tree"), Path("/nowhere/git"), access, True)

    values = {
        settings[f"GIT_CONFIG_KEY_{n}"]: settings[f"GIT_CONFIG_VALUE_{n}"]
        for n in range(int(settings["GIT_CONFIG_COUNT"]))
    }
    assert values["http.followRedirects"] == "false"
    [scoped] = [key for key in values if key.endswith(".extraHeader")]
    assert scoped == "http.http://openface.lan:8091/git/alice/rtx4090-matrix-lab.git.extraHeader"
    assert settings["GIT_ALLOW_PROTOCOL"] == "https:http"


def test_a_stop_cuts_the_fetch(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": "1"})
    stopped = threading.Event()
    stopped.set()

    with pytest.raises(JobInterrupted):
        SourceFetcher().fetch(
            claim_of(plane, "hello", revision), tmp_path / "source", output=lambda data: None, cancel=stopped
        )


def test_a_control_plane_that_is_away_for_a_moment_is_waited_for(plane: ControlPlane, tmp_path: Path) -> None:
    revision = make_repository(plane.git_root, "hello", {"app.py": "1"})
    claim = claim_of(plane, "hello", revision)
    address = urlsplit(claim.clone_url)
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]  # closed again: nobody answers there until the first try has failed
    away = dataclasses.replace(claim, clone_url=address._replace(netloc=f"127.0.0.1:{port}").geturl())
    said: list[bytes] = []

    def hear(data: bytes) -> None:
        if b"trying again" in data and not any(b"trying again" in earlier for earlier in said):
            threading.Thread(target=relay, args=(port, address.port), daemon=True).start()
        said.append(data)

    SourceFetcher().fetch(away, tmp_path / "source", output=hear, cancel=NEVER)

    assert (tmp_path / "source" / "app.py").read_text() == "1"


def relay(port: int, to: int | None) -> None:
    """Pass connections on this port to another one, each in threads of its own."""
    server = socket.create_server(("127.0.0.1", port))
    while True:
        near, _ = server.accept()
        far = socket.create_connection(("127.0.0.1", to or 0))
        for a, b in ((near, far), (far, near)):
            threading.Thread(target=pump, args=(a, b), daemon=True).start()


def pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
