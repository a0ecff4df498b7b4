"""The demo as one thing that can be set up and taken down: the control plane, two workers, sample Spaces."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

from openface.demo import engine, remains
from openface.demo.machines import MACHINES, Machine
from openface.installation import Installation, InstallationError
from openface.stack import Stack

_ENROLL_SECONDS = 120.0
_STOP_JOBS_SECONDS = 60.0


class House:
    """Call `set_up`, look around, and call `take_down` in any case, also when `set_up` has failed."""

    def __init__(
        self,
        state_dir: Path,
        *,
        port_base: int,
        overrides: Mapping[str, str] | None = None,
        output: TextIO | None = None,
    ) -> None:
        settings = {
            "OPENFACE_GPU_WORKERS_ENABLED": "true",
            "OPENFACE_ALLOW_SIMULATED_GPUS": "true",
            **(overrides or {}),
        }
        self.installation = Installation(state_dir, port_base=port_base, overrides=settings)
        self.stack = Stack(self.installation, output=output)
        self.engine: engine.Engine

    def set_up(self) -> None:
        """Start everything and wait until both workers have enrolled. Raises InstallationError with a sentence."""
        self.stack.up()
        self.engine = engine.choose()
        self.stack.supervisor.say(self.engine.sentence)
        self.stack.manage("furnish_demo", "--port-base", str(self.installation.port_base))
        for machine in MACHINES:
            self.stack.supervisor.start(machine.program(self.installation, self.engine))
        for machine in MACHINES:
            self._wait_until_enrolled(machine)

    def start_space(self, space: str) -> None:
        """Queue the newest commit of OWNER/REPO, as the administrator."""
        self.stack.manage("space", "start", space)

    def stop_space(self, space: str) -> None:
        """Stop it and wait until it has stopped."""
        self.stack.manage("space", "stop", space, "--wait", str(_STOP_JOBS_SECONDS))

    def apps_of(self, machine: Machine) -> set[str]:
        """Return what this worker has running, as the machine itself says."""
        worker = remains.worker_id(machine.directory(self.installation))
        return remains.apps_of(worker, self.engine) if worker else set()

    def remains(self) -> list[str]:
        """Return what the workers have running or lying about, in words."""
        return remains.remains_of(self._worker_ids(), self.engine)

    def take_down(self) -> None:
        """Stop the jobs, then the workers, then the rest. What a job leaves in spite of that is removed."""
        try:
            if hasattr(self, "engine"):
                self._stop_jobs()
        finally:
            self.stack.down()
            if hasattr(self, "engine"):
                remains.remove_remains(self._worker_ids(), self.engine)

    def forget_images(self) -> None:
        """Remove the images that the workers have built: for a house that is never set up again."""
        if hasattr(self, "engine"):
            remains.remove_images(self._worker_ids(), self.engine)

    def _stop_jobs(self) -> None:
        say = self.stack.supervisor.say
        say("stopping the Spaces (Ctrl-C again: stop everything at once)")
        try:
            self.stack.manage("space", "stop", "--all", "--wait", str(_STOP_JOBS_SECONDS))
        except InstallationError as error:
            say(f"{error} What is left of them is removed.")

    def _wait_until_enrolled(self, machine: Machine) -> None:
        deadline = time.monotonic() + _ENROLL_SECONDS
        while remains.worker_id(machine.directory(self.installation)) is None:
            status = self.stack.supervisor.given_up(machine.name)
            if status is not None:
                raise InstallationError(f"The worker {machine.name} ended with status {status}; see its lines.")
            if time.monotonic() > deadline:
                raise InstallationError(f"The worker {machine.name} has not enrolled; see its lines.")
            if self.stack.stop_wanted.wait(0.1):
                raise InstallationError("Stopped before everything was up.")

    def _worker_ids(self) -> list[str]:
        ids = (remains.worker_id(machine.directory(self.installation)) for machine in MACHINES)
        return [worker for worker in ids if worker]
