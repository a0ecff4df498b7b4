"""The chain, and the fixtures of tests/runtime_proxy made of it: the same tests, asked of the real thing."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e_fidelity.chain import Chain, reaches_inside
from tests.e2e_fidelity.tunnel import Tunnel
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.nginx import in_front_of
from tests.runtime_proxy.upstreams import Loop, Upstream, answering

HERE = Path(__file__).parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out, of the tests that are repeated here, those that no other process can be asked."""
    left_out = [item for item in items if item.path.parent == HERE and reaches_inside(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def chain() -> Iterator[Chain]:
    # Not pytest's own directories: those are closed to others, and the database's account passes through.
    with tempfile.TemporaryDirectory(prefix="openface-world-") as directory:
        path = Path(directory)
        path.chmod(0o711)
        chain = Chain(path)
        try:
            chain.up()
            yield chain
        except BaseException:
            print(chain.world.log_tail(200))
            raise
        finally:
            chain.down()


@pytest.fixture(autouse=True)
def show_what_programs_said(chain: Chain, request: pytest.FixtureRequest) -> Iterator[None]:
    failed_before = request.session.testsfailed
    yield
    if request.session.testsfailed > failed_before:
        print(chain.world.log_tail(60))


@pytest.fixture
def data_plane(chain: Chain) -> DataPlane:
    """The data plane's process."""
    return chain.data_plane


@pytest.fixture
def upstream() -> Iterator[Upstream]:
    """What the app in the container does, unless a test names another port of its own."""
    with answering() as server:
        yield server


@pytest.fixture
def run_space(chain: Chain, upstream: Upstream) -> Iterator[Callable[..., None]]:
    """Let the container of a Space say what is said at that port."""
    tunnels: list[Tunnel] = []
    loop = Loop()

    def make(full_name: str = "alice/app", *, port: int | None = None, **front_matter: str) -> None:
        tunnel = Tunnel(loop, chain.run(full_name, **front_matter))
        tunnels.append(tunnel)
        tunnel.carry_to(port or upstream.port)

    yield make
    for tunnel in tunnels:
        tunnel.stop()
    loop.close()


@pytest.fixture
def nginx(data_plane: DataPlane, tmp_path: Path) -> Iterator[DataPlane]:
    """The proxy that the compose files come with, in front of the data plane."""
    with in_front_of(data_plane, tmp_path) as proxy:
        yield proxy
