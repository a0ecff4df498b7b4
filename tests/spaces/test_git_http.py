"""A worker reads its job's repository with the lease's token: that one, while it is leased or building, read-only.

Real git against a real server, as the worker does it.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.db import connection

from jobs.lifecycle import request_stop
from jobs.models import Lease
from jobs.tokens import runtime_token, source_token
from spaces import git_http
from spaces.forge.local_writes import find_repository
from tests.spaces.git_server import Claimed, ask, basic, fetch
from tests.spaces.repositories import commit, git, set_ref
from workers.models import Worker

pytestmark = pytest.mark.django_db(transaction=True)


INFO = "/git/alice/app.git/info/refs?service=git-upload-pack"
PACK = "/git/alice/app.git/git-upload-pack"


LARGE = os.urandom(16 * 1024 * 1024)  # does not compress, and is more than all buffers on the way hold


# --- it works --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["0", "2"])
def test_the_lease_s_worker_fetches_the_job_s_commit(
    server: str, claimed: Callable[..., Claimed], tmp_path: Path, protocol: str
) -> None:
    mine = claimed(visibility="private")
    revision = mine.lease.job.revision
    token = basic("lease", source_token(mine.lease))

    done = fetch(server, "/git/alice/app.git", revision, token, tmp_path, "-c", f"protocol.version={protocol}")

    assert (done.returncode, done.stderr) == (0, "")
    assert git("show", f"{revision}:app.py", cwd=tmp_path).stdout == "print('hello')\n"
    assert token not in (tmp_path / ".git" / "config").read_text()


def test_a_commit_that_is_no_longer_the_head_is_still_served(
    server: str, claimed: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = claimed()
    commit("alice/app", {"README.md": "pushed while it waited\n"})

    done = fetch(
        server, "/git/alice/app.git", mine.lease.job.revision, basic("lease", source_token(mine.lease)), tmp_path
    )

    assert done.returncode == 0


def test_a_large_repository_with_a_long_history_is_served_whole(
    server: str, claimed: Callable[..., Claimed], tmp_path: Path
) -> None:
    content = os.urandom(2 * 1024 * 1024)  # does not compress
    mine = claimed(files={"model.bin": content})
    for number in range(5):
        commit("alice/app", {"model.bin": content, "n": str(number)})
    header = f"Authorization: {basic('lease', source_token(mine.lease))}"

    done = git(
        "-c", f"http.extraHeader={header}", "clone", "--quiet", f"{server}/git/alice/app.git", str(tmp_path / "c")
    )

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "c" / "model.bin").read_bytes() == content
    assert git("rev-list", "--count", "HEAD", cwd=tmp_path / "c").stdout.strip() == "6"

    # A second fetch tells what it has: a long request, which git compresses
    commit("alice/app", {"README.md": "newer\n"})
    again = git("-c", f"http.extraHeader={header}", "fetch", "--quiet", "origin", cwd=tmp_path / "c")
    assert (again.returncode, again.stderr) == (0, "")


def test_a_repository_that_was_renamed_is_served_under_the_name_that_the_job_knows(
    server: str, claimed: Callable[..., Claimed], tmp_path: Path
) -> None:
    mine = claimed()
    row = find_repository("alice", "app")
    row.name = "renamed"
    row.save()

    done = fetch(
        server, "/git/ALICE/app.git", mine.lease.job.revision, basic("lease", source_token(mine.lease)), tmp_path
    )

    assert done.returncode == 0


def test_a_compressed_request_is_understood(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    wish = b"0032want " + mine.lease.job.revision.encode() + b"\n" + b"0000" + b"0009done\n"

    status, headers, answer = ask(
        server,
        "POST",
        PACK,
        authorization=basic("lease", source_token(mine.lease)),
        body=gzip.compress(wish),
        headers={"Content-Type": "application/x-git-upload-pack-request", "Content-Encoding": "gzip"},
    )

    assert status == 200
    assert headers["content-type"] == "application/x-git-upload-pack-result"
    assert answer.startswith(b"0008NAK\nPACK")


# --- for whom --------------------------------------------------------------------------------------------------------


def test_it_ends_with_the_build_and_not_before(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    token = basic("lease", source_token(mine.lease))

    def status() -> int:
        return ask(server, "GET", INFO, authorization=token)[0]

    assert status() == 200  # leased
    mine.report("building")
    assert status() == 200
    mine.report("starting")
    assert status() == 401
    mine.report("running")
    assert status() == 401


def test_a_stopped_job_s_token_opens_nothing(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    request_stop(mine.lease.job_id)

    assert ask(server, "GET", INFO, authorization=basic("lease", source_token(mine.lease)))[0] == 401


def test_a_released_lease_and_a_revoked_worker_read_nothing(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    token = basic("lease", source_token(mine.lease))
    assert ask(server, "GET", INFO, authorization=token)[0] == 200

    Worker.objects.update(revoked_at=mine.lease.acquired_at)
    assert ask(server, "GET", INFO, authorization=token)[0] == 401

    Worker.objects.update(revoked_at=None)
    Lease.objects.update(released_at=mine.lease.acquired_at)
    assert ask(server, "GET", INFO, authorization=token)[0] == 401


def test_a_token_opens_its_own_repository_only(server: str, claimed: Callable[..., Claimed]) -> None:
    mine, other = claimed("alice/app"), claimed("bob/other", visibility="public")

    for path in ("/git/bob/other.git/info/refs?service=git-upload-pack", "/git/alice/other.git/info/refs"):
        assert ask(server, "GET", path, authorization=basic("lease", source_token(mine.lease)))[0] == 401
    assert ask(server, "GET", INFO, authorization=basic("lease", source_token(other.lease)))[0] == 401


def test_every_wrong_credential_gets_the_same_answer_as_a_missing_repository(
    server: str, claimed: Callable[..., Claimed]
) -> None:
    mine = claimed()
    token = source_token(mine.lease)
    wrong = [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Bearer " + token,
        basic("lease", ""),
        basic("lease", token[:-1]),
        basic("lease", token.upper()),
        basic("lease", runtime_token(mine.lease)),
        basic("worker", token),
        basic("lease", "ä" * 64),
        "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
        "Basic " + base64.b64encode(b"no colon").decode(),
    ]

    answers = {ask(server, "GET", INFO, authorization=each)[0::2] for each in wrong}
    answers |= {
        ask(server, method, path, authorization=basic("lease", token))[0::2]
        for method, path in (
            ("GET", "/git/alice/missing.git/info/refs?service=git-upload-pack"),
            ("POST", "/git/alice/missing.git/git-upload-pack"),
            ("GET", "/git/alice/app/info/refs?service=git-upload-pack"),
            ("GET", "/git/../alice/app.git/info/refs?service=git-upload-pack"),
            ("GET", "/git/a%00b/app.git/info/refs?service=git-upload-pack"),
            ("GET", "/git/"),
        )
    }

    assert answers == {(401, b"This needs the source token of a lease that may read here.\n")}
    assert ask(server, "GET", INFO, authorization=basic("lease", token))[0] == 200


def test_the_same_token_in_another_user_s_session_cookie_is_nothing(
    server: str, claimed: Callable[..., Claimed]
) -> None:
    claimed(visibility="public")

    assert ask(server, "GET", INFO, headers={"Cookie": "sessionid=anything"})[0] == 401


# --- read-only, within bounds ----------------------------------------------------------------------------------------


def test_a_push_is_refused(server: str, claimed: Callable[..., Claimed], tmp_path: Path) -> None:
    mine = claimed()
    token = basic("lease", source_token(mine.lease))
    assert fetch(server, "/git/alice/app.git", mine.lease.job.revision, token, tmp_path).returncode == 0

    pushed = git(
        *("-c", f"http.extraHeader=Authorization: {token}", "push", f"{server}/git/alice/app.git"),
        "FETCH_HEAD:refs/heads/evil",
        cwd=tmp_path,
    )

    assert pushed.returncode != 0
    for method, path in (
        ("GET", "/git/alice/app.git/info/refs?service=git-receive-pack"),
        ("POST", "/git/alice/app.git/git-receive-pack"),
    ):
        for authorization in (token, None):
            assert ask(server, method, path, authorization=authorization)[0] == 403


def test_nothing_but_reading_over_smart_http_is_there(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    asked = [
        ("GET", "HEAD"),
        ("GET", "config"),
        ("GET", "objects/info/packs"),
        ("GET", "info/refs"),
        ("GET", "info/refs?service=git-upload-archive"),
        ("GET", "git-upload-pack"),
        ("POST", "info/refs?service=git-upload-pack"),
        ("POST", "git-upload-archive"),
        ("DELETE", "git-upload-pack"),
    ]

    answers = {
        (method, path): ask(
            server, method, f"/git/alice/app.git/{path}", authorization=basic("lease", source_token(mine.lease))
        )[0]
        for method, path in asked
    }

    assert answers == dict.fromkeys(asked, 404)


def test_nonsense_is_refused_with_a_status_or_in_git_s_own_words(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()

    def answer(body: bytes, **headers: str) -> tuple[int, bytes]:
        sent = {"Content-Type": "application/x-git-upload-pack-request"}
        sent |= {name.replace("_", "-"): value for name, value in headers.items()}
        status, _, said = ask(
            server, "POST", PACK, authorization=basic("lease", source_token(mine.lease)), body=body, headers=sent
        )
        return status, said[4:8] if status == 200 else b""

    assert answer(b"", Content_Type="text/plain") == (415, b"")
    assert answer(b"x", Content_Encoding="br") == (415, b"")
    assert answer(b"this is not gzip", Content_Encoding="gzip") == (400, b"")
    assert answer(gzip.compress(b"0032want ")[:-8], Content_Encoding="gzip") == (400, b"")
    assert answer(b"zzzz") == (400, b"")
    assert answer(b"0032want " + b"0" * 39 + b"1\n00000009done\n") == (200, b"ERR ")


def test_a_small_body_that_unpacks_to_a_huge_one_is_refused(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    bomb = gzip.compress(b"0032want " + b"1" * 40 + b"\n" + b"0032have " * (8 * 1024 * 1024))
    assert len(bomb) < 200_000

    status, _, said = ask(
        server,
        "POST",
        PACK,
        authorization=basic("lease", source_token(mine.lease)),
        body=bomb,
        headers={"Content-Type": "application/x-git-upload-pack-request", "Content-Encoding": "gzip"},
    )

    # Git ends at the first line that makes no sense, with its own words; nobody unpacks the rest.
    assert status == 200
    assert said[4:8] == b"ERR "


def test_a_request_above_the_limit_is_too_large(
    server: str, claimed: Callable[..., Claimed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_http, "REQUEST_LIMIT", 1000)
    mine = claimed()
    haves = b"".join(b"0032have %040d\n" % number for number in range(1, 60))
    wish = b"0032want " + mine.lease.job.revision.encode() + b"\n0000"

    status, _, _ = ask(
        server,
        "POST",
        PACK,
        authorization=basic("lease", source_token(mine.lease)),
        body=wish + haves,
        headers={"Content-Type": "application/x-git-upload-pack-request"},
    )

    assert status == 413


def test_when_all_places_are_taken_the_answer_is_to_come_back(
    server: str, claimed: Callable[..., Claimed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(git_http, "_slots", asyncio.Semaphore(0))
    mine = claimed()

    status, headers, _ = ask(server, "GET", INFO, authorization=basic("lease", source_token(mine.lease)))

    assert (status, headers["retry-after"]) == (503, "3")


def test_an_unknown_protocol_header_does_not_reach_git(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()

    status, _, answer = ask(
        server,
        "GET",
        INFO,
        authorization=basic("lease", source_token(mine.lease)),
        headers={"Git-Protocol": "version=2:$(touch /tmp/evil)"},
    )

    assert status == 200
    assert b"version 2" not in answer  # treated as if it were not there


def test_a_client_that_hangs_up_ends_git(server: str, claimed: Callable[..., Claimed]) -> None:
    # Given a pack that is far larger than all buffers on the way
    mine = claimed(files={"model.bin": LARGE})
    wish = b"0032want " + mine.lease.job.revision.encode() + b"\n00000009done\n"
    where = urlsplit(server)
    head = (
        f"POST {PACK} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic('lease', source_token(mine.lease))}\r\n"
        f"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: {len(wish)}\r\n\r\n"
    )
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=30) as client:
        client.sendall(head.encode() + wish)
        assert b"200 OK" in client.recv(100)
        repository = str(find_repository("alice", "app").pk)
        assert _gits_on(repository)

    # When it hangs up in the middle, then nothing of git is left
    deadline = time.monotonic() + 20
    while _gits_on(repository):
        assert time.monotonic() < deadline, "git goes on for nobody"
        time.sleep(0.05)


def test_a_transfer_holds_no_database_connection(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed(files={"model.bin": LARGE})
    wish = b"0032want " + mine.lease.job.revision.encode() + b"\n00000009done\n"
    where = urlsplit(server)
    head = (
        f"POST {PACK} HTTP/1.1\r\nHost: x\r\nAuthorization: {basic('lease', source_token(mine.lease))}\r\n"
        f"Content-Type: application/x-git-upload-pack-request\r\nContent-Length: {len(wish)}\r\n\r\n"
    )
    before = _backends()
    with socket.create_connection((where.hostname or "", where.port or 0), timeout=30) as client:
        client.sendall(head.encode() + wish)
        assert b"200 OK" in client.recv(100)  # the transfer goes on from here

        assert _backends() == before


def test_a_commit_that_was_forced_away_is_still_the_job_s_own(
    server: str, claimed: Callable[..., Claimed], tmp_path: Path
) -> None:
    """The job was allowed to have it when it was made; protocol 2 serves it until git collects it."""
    mine = claimed()
    newer = commit("alice/app", {"README.md": "other\n"})
    set_ref(find_repository("alice", "app"), "refs/heads/main", newer)

    done = fetch(
        server, "/git/alice/app.git", mine.lease.job.revision, basic("lease", source_token(mine.lease)), tmp_path
    )

    assert done.returncode == 0


def _gits_on(repository_id: str) -> list[int]:
    """Return the processes of git that work on that repository."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:  # gone meanwhile
                continue
            if b"upload-pack" in words and any(word.endswith(f"/{repository_id}.git".encode()) for word in words):
                found.append(int(entry.name))
    return found


def _backends() -> int:
    """Count the connections to the test database, this one included."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
        return int(cursor.fetchone()[0])
