"""Git LFS of the data plane: the batch call and the objects, downloads only."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from jobs.tokens import source_token
from spaces.forge.local_writes import find_repository
from tests.spaces.git_server import Claimed, ask, basic
from tests.spaces.worker_sources import OID, POINTED, keep_lfs

pytestmark = pytest.mark.django_db(transaction=True)


def test_the_batch_call_refuses_what_it_does_not_know(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed()
    row = find_repository("alice", "app")
    keep_lfs(row)
    root, token = "/git/alice/app.git/info/lfs", basic("lease", source_token(mine.lease))

    def status(method: str, path: str, body: object = None, authorization: str | None = token) -> int:
        sent = body if isinstance(body, bytes) else json.dumps(body).encode()
        return ask(server, method, f"{root}/{path}", authorization=authorization, body=sent)[0]

    objects = [{"oid": OID, "size": len(POINTED)}]
    assert status("POST", "objects/batch", {"operation": "download", "objects": objects}) == 200
    assert status("POST", "objects/batch", {"operation": "upload", "objects": objects}) == 403
    for nonsense in (
        b"{",
        b"[]",
        b"[" * 100_000,
        b"x" * 2_000_000,
        {"objects": [{"oid": "../../etc"}]},
        {"objects": 1},
    ):
        assert status("POST", "objects/batch", nonsense) == 422
    assert status("POST", "objects/batch", {"operation": "download", "objects": objects}, None) == 401
    assert status("GET", f"objects/{OID}") == 200
    assert status("HEAD", f"objects/{OID}") == 200
    assert status("GET", f"objects/{OID}", None, None) == 401
    assert status("GET", f"objects/{'0' * 64}") == 404
    for path in (f"objects/{OID[:-1]}", f"objects/{OID.upper()}", f"objects/../{OID}", "locks", "objects"):
        assert status("GET", path) == 404
    assert status("PUT", f"objects/{OID}") == 404
    assert status("POST", "locks/verify", {}) == 404


def test_a_download_that_broke_off_goes_on_where_it_was(server: str, claimed: Callable[..., Claimed]) -> None:
    token = basic("lease", source_token(claimed().lease))
    keep_lfs(find_repository("alice", "app"))
    size = len(POINTED)

    def answer(wanted: str) -> tuple[int, str | None, bytes]:
        path = f"/git/alice/app.git/info/lfs/objects/{OID}"
        status, headers, body = ask(server, "GET", path, authorization=token, headers={"Range": wanted})
        return status, headers.get("content-range"), body

    assert answer(f"bytes=7-{size - 1}") == (206, f"bytes 7-{size - 1}/{size}", POINTED[7:])  # as git-lfs asks
    assert answer("bytes=7-") == (206, f"bytes 7-{size - 1}/{size}", POINTED[7:])
    assert answer(f"bytes=0-{size}") == (206, f"bytes 0-{size - 1}/{size}", POINTED)
    assert answer("bytes=3-5") == (206, f"bytes 3-5/{size}", POINTED[3:6])
    assert answer(f"bytes={size - 1}-") == (206, f"bytes {size - 1}-{size - 1}/{size}", POINTED[-1:])
    assert answer(f"bytes={size}-")[:2] == (416, f"bytes */{size}")
    for other in ("bytes=-5", "bytes=5-3", "lines=7-", "bytes=7-,9-", "bytes=x-"):  # may be ignored
        assert answer(other) == (200, None, POINTED)
