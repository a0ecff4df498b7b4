"""An installation with a hostile Space, which people reach in two ways: by a second port, and by a second host name.

One database, one worker and one app; a portal and a data plane for each way.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from openface.installation import Installation, free_port_base
from openface.stack import Stack
from tests.e2e.world import PASSWORD, SCALED, World

HOSTILE = Path(__file__).resolve().parents[2] / "fixtures" / "spaces" / "hostile"
SPACE = "owner/hostile"
NEIGHBOUR = "owner/neighbour"
PRIVATE = "owner/private"


@dataclass(frozen=True)
class Way:
    """Where a browser finds the portal and the Spaces."""

    name: str
    portal: str
    runtime: str

    def app(self, space: str) -> str:
        return f"{self.runtime}/run/{space}/"


class HostileWorld(World):
    """A World with both ways, and the three Spaces running."""

    def up(self) -> None:
        super().up()
        self.machine("cpu1")
        self._furnish()
        self.ways = {
            "second-port": Way("second-port", self.web, self.data),
            # Two names below one that is no public suffix: same-site for Chromium, and secure contexts.
            "second-host": self._another_way("of.localhost", "run.of.localhost"),
        }

    def _furnish(self) -> None:
        owner = self.portal("owner")
        self.manage("import_space", str(HOSTILE), SPACE, "--topics", "space,cpu", "--visibility", "public")
        self.space("neighbour")
        self.space("private", visibility="private")
        for space in (SPACE, NEIGHBOUR, PRIVATE):
            owner.act(space, "start")
        for space in (SPACE, NEIGHBOUR, PRIVATE):
            self.wait_for_state(space, "running")

    def _another_way(self, portal_host: str, runtime_host: str) -> Way:
        base = free_port_base()
        way = Way("second-host", f"http://{portal_host}:{base}", f"http://{runtime_host}:{base + 1}")
        overrides = {**SCALED, "PUBLIC_BASE_URL": way.portal, "OPENFACE_RUNTIME_ORIGIN": way.runtime}
        stack = Stack(Installation(self.installation.state_dir, port_base=base, overrides=overrides))
        for program in (stack._web(), stack._data()):
            self.stack.supervisor.start(replace(program, name=f"{program.name}-2"))
        self.stack.wait_for_answer("web-2", f"http://127.0.0.1:{base}/healthz")
        self.stack.wait_for_answer("data-2", f"http://127.0.0.1:{base + 1}/healthz")
        return way


__all__ = ["NEIGHBOUR", "PASSWORD", "PRIVATE", "SPACE", "HostileWorld", "Way"]
