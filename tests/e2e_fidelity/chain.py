"""One installation as it is run, every program a process of its own, and apps in containers that say what tests say.

Socket → data plane → (network) → gateway of the worker → container. Nothing of it is within the test's process but the
words that the container says: mouthpiece.py is the app, tunnel.py lends it a port of the test.
"""

from __future__ import annotations

import inspect
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from openface.demo.engine import Engine
from tests.e2e.world import PASSWORD, Oddities, World
from tests.gpu_worker.builds import python_image
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.nginx import PROXY

WORKER = "gpu1"
INSIDE = frozenset({"monkeypatch", "settings", "caplog", "signed_in", "transactional_db", "impatient"})
MOUTHPIECE = Path(__file__).with_name("mouthpiece.py")
DOCKERFILE = """\
ARG BASE_IMAGE=python:3.11-slim
FROM ${BASE_IMAGE}
COPY mouthpiece.py /
CMD ["python3", "/mouthpiece.py"]
"""


class Chain:
    """The installation, with a worker that has a container engine."""

    def __init__(self, directory: Path) -> None:
        self.world = World(directory, overrides={"OPENFACE_TRUSTED_PROXIES": PROXY})
        self._containers: dict[str, dict[str, Any]] = {}
        """What the engine says of them, by the names of the running Spaces."""

    def up(self) -> None:
        self.world.up()
        alice = f"User.objects.create_user('alice', password={PASSWORD!r})"
        self.world.manage("shell", "-c", f"from django.contrib.auth.models import User\n{alice}")
        self.world.machine(WORKER, odd=Oddities(engine=Engine("docker", python_image(), "")))

    def down(self) -> None:
        self.world.down()

    @property
    def data_plane(self) -> DataPlane:
        return DataPlane(self.world.installation.data_port)

    def run(self, space: str, **front_matter: str) -> str:
        """Start a public Space; return the address of its container."""
        if space in self._containers:
            return self._address(space)
        before = self.world.apps_of(WORKER)
        lines = "".join(f"{key}: {value}\n" for key, value in {"sdk": "docker", **front_matter}.items())
        self._import(space, {"README.md": f"---\n{lines}---\n", "Dockerfile": DOCKERFILE})
        self.world.portal("alice").act(space, "start")
        self.world.wait_for_state(space, "running", "failed")
        assert self.world.state(space) == "running", self.world.history(space)
        [container] = self.world.apps_of(WORKER) - before
        inspected = subprocess.run(["docker", "inspect", container], capture_output=True, check=True).stdout
        self._containers[space] = json.loads(inspected)[0]
        return self._address(space)

    def environment(self, space: str) -> dict[str, str]:
        """The variables of a running Space's app."""
        return dict(variable.split("=", 1) for variable in self._containers[space]["Config"]["Env"])

    def pid_of(self, program: str) -> int:
        pid = self.world.stack.supervisor.pid(program)
        assert pid is not None
        return pid

    def _address(self, space: str) -> str:
        networks = self._containers[space]["NetworkSettings"]["Networks"].values()
        return str(next(network["IPAddress"] for network in networks if network["IPAddress"]))

    def _import(self, space: str, files: Mapping[str, str]) -> None:
        source = self.world.directory / "sources" / space
        source.mkdir(parents=True)
        for name, text in {**files, MOUTHPIECE.name: MOUTHPIECE.read_text()}.items():
            (source / name).write_text(text)
        self.world.manage("import_space", str(source), space, "--topics", "space,cpu", "--visibility", "public")


def reaches_inside(item: pytest.Item) -> bool:
    """Whether a test looks into the process that serves, or changes it: it cannot be asked of another process."""
    asked_for = {name for marker in item.iter_markers("usefixtures") for name in marker.args}
    if isinstance(item, pytest.Function):
        asked_for |= set(inspect.signature(item.function).parameters)
    return bool(item.get_closest_marker("inside")) or not INSIDE.isdisjoint(asked_for)
