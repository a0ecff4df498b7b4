"""What an app in a container finds of where it lives: enough to write links that work there."""

from __future__ import annotations

from collections.abc import Callable

from tests.e2e_fidelity.chain import Chain
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.upstreams import Upstream


def test_an_app_can_write_its_own_address(
    chain: Chain, run_space: Callable[..., None], data_plane: DataPlane, upstream: Upstream
):
    run_space()
    found = chain.environment("alice/app")

    assert found["PUBLIC_URL"] == chain.world.data + "/run/alice/app"
    assert data_plane.get(found["OPENFACE_BASE_PATH"] + "/x").status == 200
    assert upstream.seen[0].target == b"/x"
    assert found["GRADIO_ROOT_PATH"] == found["UVICORN_ROOT_PATH"] == "/run/alice/app"
    host = chain.world.data.partition("//")[2]
    assert (found["SPACE_ID"], found["SPACE_HOST"], found["SPACE_AUTHOR_NAME"]) == ("alice/app", host, "alice")
    assert (found["PORT"], found["HOST"]) == ("7860", "0.0.0.0")


def test_an_app_that_keeps_its_prefix_is_told_of_no_root_path(chain: Chain, run_space: Callable[..., None]):
    run_space("alice/kept", prefix="keep", rewrite_host="true")
    found = chain.environment("alice/kept")

    assert found["OPENFACE_BASE_PATH"] == "/run/alice/kept"
    assert found["DASH_URL_BASE_PATHNAME"] == "/run/alice/kept/"
    assert not {"GRADIO_ROOT_PATH", "UVICORN_ROOT_PATH"} & found.keys()
