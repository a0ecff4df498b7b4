"""People fetch results with the repository's permission, as downloads that cannot act."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import Settings

from jobs import artifact_store
from jobs.models import Artifact
from runtime_proxy.artifacts_download import Part, part_of
from tests.runtime_proxy.batch import Delivering, batch_job
from tests.runtime_proxy.conftest import PORTAL
from tests.runtime_proxy.data_plane import DataPlane

SignIn = Callable[[User], str]
CONTENT = b"0123456789"


@pytest.fixture(autouse=True)
def _directory(settings: Settings, tmp_path: Path) -> None:
    settings.OPENFACE_ARTIFACTS_DIR = tmp_path / "artifacts"


@pytest.fixture
def owner(transactional_db: None) -> User:
    return User.objects.create_user("alice")


@pytest.fixture
def stranger(transactional_db: None) -> User:
    return User.objects.create_user("carol")


def with_result(data_plane: DataPlane, path: str = "score.txt", content: bytes = CONTENT, **wishes: str) -> Delivering:
    done = batch_job(data_plane, **wishes)
    assert done.put(path, content).status == 201
    return done


def test_anybody_fetches_a_public_result(data_plane: DataPlane) -> None:
    done = with_result(data_plane)

    answer = data_plane.get(done.where("score.txt"))

    assert (answer.status, answer.body) == (200, CONTENT)
    assert answer.one("content-length") == "10"


def test_whatever_it_is_no_browser_interprets_it(data_plane: DataPlane) -> None:
    name = "图 \"<b>';.html"
    done = with_result(data_plane, f"deep/{name}", b"<script>alert(1)</script>")

    answer = data_plane.get(done.where(f"deep/{name}"))

    assert answer.status == 200
    assert answer.one("content-type") == "application/octet-stream"
    assert answer.one("x-content-type-options") == "nosniff"
    assert str(answer.one("content-security-policy")).startswith("sandbox")
    assert answer.one("cross-origin-resource-policy") == "same-origin"
    disposition = str(answer.one("content-disposition"))
    assert disposition.startswith('attachment; filename="')
    assert "filename*=UTF-8''%E5%9B%BE%20%22%3Cb%3E%27%3B.html" in disposition
    assert disposition.isascii()


def test_it_is_saved_under_a_name_that_looks_like_no_other(data_plane: DataPlane) -> None:
    done = with_result(data_plane, "deep/a\u202egnp.exe")

    answer = data_plane.get(done.where("deep/a\u202egnp.exe"))

    assert answer.status == 200
    assert answer.one("content-disposition") == "attachment; filename=\"a_gnp.exe\"; filename*=UTF-8''a_gnp.exe"


def test_a_page_on_this_origin_cannot_read_it_by_script(data_plane: DataPlane, owner: User, signed_in: SignIn) -> None:
    done = with_result(data_plane, visibility="private")
    cookie = signed_in(owner)

    for mode in ("cors", "no-cors", "same-origin"):
        assert data_plane.get(done.where("score.txt"), Cookie=cookie, Sec_Fetch_Mode=mode).status == 404
    assert data_plane.navigate(done.where("score.txt"), Cookie=cookie).status == 200


class TestPrivate:
    """Missing and not yours look the same."""

    def test_the_owner_fetches_it(self, data_plane: DataPlane, owner: User, signed_in: SignIn) -> None:
        done = with_result(data_plane, visibility="private")

        assert data_plane.get(done.where("score.txt"), Cookie=signed_in(owner)).body == CONTENT

    def test_a_stranger_and_nobody_get_404(self, data_plane: DataPlane, stranger: User, signed_in: SignIn) -> None:
        done = with_result(data_plane, visibility="private")
        missing = f"/results/alice/nothing/{uuid.uuid4()}/score.txt"

        for cookie in ("", signed_in(stranger)):
            hidden, gone = (data_plane.get(path, Cookie=cookie) for path in (done.where("score.txt"), missing))
            assert (hidden.status, gone.status) == (404, 404)
            assert hidden.body == gone.body
            assert json.loads(hidden.body)["code"] == "not_found"

    def test_a_browser_without_a_session_comes_back_with_one(self, data_plane: DataPlane, owner: User) -> None:
        done = with_result(data_plane, "図 1.png", visibility="private")
        where = done.where("図 1.png")

        away = data_plane.navigate(where)
        assert away.status == 302
        nonce, location = str(away.one("set-cookie")).partition(";")[0], str(away.one("location"))
        assert location.startswith(f"{PORTAL}/run-handover/?")
        portal = Client()
        portal.force_login(owner)
        parts = urlsplit(location)
        back = portal.get(f"{parts.path}?{parts.query}").headers["Location"]
        swapped = data_plane.navigate(back.removeprefix(f"http://{data_plane.host}"), Cookie=nonce)
        assert (swapped.status, swapped.one("location")) == (302, where)
        session = str(swapped.one("set-cookie")).partition(";")[0]

        assert data_plane.navigate(where, Cookie=session).body == CONTENT


def test_it_can_only_be_read_and_only_under_its_own_address(data_plane: DataPlane) -> None:
    done, other = with_result(data_plane), batch_job(data_plane, "alice/other")
    job = done.job.pk

    for path in (
        f"/results/alice/bench/{job}/",
        f"/results/alice/bench/{job}",
        f"/results/alice/bench/{job}/nothing",
        f"/results/alice/bench/{job}/../score.txt",
        f"/results/alice/bench/{job}/%2e%2e/score.txt",
        f"/results/alice/bench/{job}/x%2Fscore.txt",
        f"/results/alice/bench/{job}/score.txt%00",
        f"/results/alice/bench/{job}/%FF",
        "/results/alice/bench/not-a-job/score.txt",
        f"/results/alice/bench/{other.job.pk}/score.txt",
        f"/results/alice/other/{job}/score.txt",
        "/results/alice/bench",
        "/results/",
    ):
        assert data_plane.get(path).status in (404, 308), path
        assert data_plane.get(path).body != CONTENT
    where = done.where("score.txt")
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert data_plane.get(where, method=method, body=b"x").status == 404
    other_case = data_plane.get(where.replace("/alice/bench/", "/ALICE/Bench/"))
    assert (other_case.status, other_case.one("location")) == (308, where)
    artifact_store.path_of(Artifact.objects.get().pk).unlink()  # the disk lost it
    assert data_plane.get(where).status == 404


def test_megabytes_are_sent_unchanged_and_can_be_resumed(data_plane: DataPlane) -> None:
    content = os.urandom(3 * 1024 * 1024 + 5)
    done = with_result(data_plane, "model.bin", content)
    where = done.where("model.bin")

    whole = data_plane.get(where)
    tag = str(whole.one("etag"))
    rest = data_plane.get(where, Range="bytes=1000000-", If_Range=tag)

    assert whole.body == content
    assert (rest.status, rest.body) == (206, content[1_000_000:])
    assert rest.one("content-range") == f"bytes 1000000-{len(content) - 1}/{len(content)}"
    assert data_plane.get(where, Range="bytes=1000000-", If_Range='"another"').body == content
    assert data_plane.get(where, Range="bytes=99999999-").status == 416
    assert data_plane.get(where, method="HEAD").one("content-length") == str(len(content))


@pytest.mark.parametrize(
    ("asked", "part"),
    [
        (b"", Part(0, 10)),
        (b"bytes=0-", Part(0, 10)),
        (b"bytes=3-5", Part(3, 6)),
        (b"bytes=3-999", Part(3, 10)),
        (b"bytes=-4", Part(6, 10)),
        (b"bytes=-99", Part(0, 10)),
        (b"bytes=5-3", Part(0, 10)),
        (b"bytes=-", Part(0, 10)),
        (b"bytes=0-1,3-4", Part(0, 10)),
        (b"lines=1-2", Part(0, 10)),
        (b"bytes=10-", None),
        (b"bytes=-0", None),
    ],
)
def test_a_range_is_what_the_rfc_says(asked: bytes, part: Part | None) -> None:
    assert part_of(10, asked, b"", b'"tag"') == part
