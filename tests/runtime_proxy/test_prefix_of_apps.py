"""The prefix that an app sees, through the whole chain: as it was set, or as it was found to be wanted."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from jobs.models import Job
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.upstreams import Upstream

RunSpace = Callable[..., Job]
STRIPPED, KEPT = b"/a//b%2F?x=1", b"/run/alice/app/a//b%2F?x=1"


@pytest.mark.parametrize(
    ("spec", "seen"),
    [
        ({"prefix": "detect", "found_prefix": "keep"}, KEPT),
        ({"prefix": "detect", "found_prefix": "strip"}, STRIPPED),
        ({"prefix": "detect"}, STRIPPED),  # an older worker does not look
        ({"prefix": "strip", "found_prefix": "keep"}, STRIPPED),  # who sets it has the last word
        ({"prefix": "keep", "found_prefix": "strip"}, KEPT),
        ({"prefix": "keep"}, KEPT),
        ({}, STRIPPED),  # started by an earlier version
    ],
)
def test_the_app_sees_the_path_that_it_wants(
    data_plane: DataPlane, run_space: RunSpace, upstream: Upstream, spec: dict[str, str], seen: bytes
):
    run_space(spec=spec)

    assert data_plane.get("/run/alice/app/a//b%2F?x=1").status == 200
    assert upstream.seen[-1].target == seen


def test_an_app_that_insists_is_called_localhost(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space(spec={"rewrite_host": True, "app_port": 8080})

    assert data_plane.get("/run/alice/app/", Origin=f"http://{data_plane.host}").status == 200

    asked = upstream.seen[-1]
    assert (asked.one(b"host"), asked.one(b"origin")) == (b"localhost:8080", b"http://localhost:8080")
