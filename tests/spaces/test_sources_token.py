"""A lease's source token opens what its job is made of, and nothing else."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from jobs.tokens import source_token
from tests.spaces.git_server import Claimed, ask, basic
from tests.spaces.repositories import make_repository
from tests.spaces.worker_sources import OID, keep_lfs

pytestmark = pytest.mark.django_db(transaction=True)


def test_another_lease_s_id_with_my_token_opens_nothing(server: str, claimed: Callable[..., Claimed]) -> None:
    mine, other = claimed("alice/app"), claimed("bob/other", visibility="public")
    info = "/git/bob/other.git/info/refs?service=git-upload-pack"
    token = source_token(mine.lease)

    def status(user: object) -> int:
        return ask(server, "GET", info, authorization=basic(str(user), token))[0]

    assert status(mine.lease.pk) == 200
    assert {status(user) for user in (other.lease.pk, uuid.uuid4(), "lease", "", mine.lease.job_id)} == {401}


def test_an_object_is_opened_by_its_own_repository_only(server: str, claimed: Callable[..., Claimed]) -> None:
    mine = claimed("alice/app")
    keep_lfs(make_repository("alice/other", visibility="public"))

    got = ask(
        server,
        "GET",
        f"/git/alice/app.git/info/lfs/objects/{OID}",
        authorization=basic("lease", source_token(mine.lease)),
    )

    assert got[0] == 404
