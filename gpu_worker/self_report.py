"""What a running worker knows of its standing with the control plane, for `status` and `verify` in another process."""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from gpu_worker import __version__
from gpu_worker.atomic import write_private

FILE_NAME = "status.json"


@dataclass(frozen=True, kw_only=True)
class SelfReport:
    pid: int
    version: str
    answers: bool
    """Whether the control plane answered the newest heartbeat."""
    problem: str | None
    """What that heartbeat met instead."""
    standing: str
    gateway_url: str | None
    """What we proposed; None: only an operator knows it."""
    gateway: str | None
    """What the control plane saw when it called the gateway; None: it has not said yet."""
    paused: str | None
    """Why no job is taken."""
    no_gpu_jobs: str | None
    """Why no GPU job is taken, where CPU jobs are."""
    paused_by_owner: bool = False
    """Whether `paused` is what the owner of the machine wants, and not something that is wrong with it."""
    control_plane: str | None = None
    """The address that all this was found at; the settings may name another by now."""
    gateway_trouble: str | None = None
    """Why the gateway does not listen yet."""
    gateway_called: str | None = None
    """The address that the control plane calls; None: none is approved, or it does not say."""
    gateway_detail: str | None = None
    """Why the gateway does not serve, in the control plane's words."""
    ended: str | None = None
    """The final answer that ended this process, as a sentence."""

    @property
    def gateway_address(self) -> str | None:
        """Where the gateway is for the control plane, or would be once it is approved."""
        return self.gateway_called or self.gateway_url


def waiting(control_plane: str, gateway_url: str | None, problem: str | None) -> SelfReport:
    """Of a worker that is not enrolled yet, and why."""
    return SelfReport(
        pid=os.getpid(),
        version=__version__,
        answers=False,
        problem=problem,
        standing="",
        gateway_url=gateway_url,
        gateway=None,
        paused=None,
        no_gpu_jobs=None,
        control_plane=control_plane,
    )


class SelfReportFile:
    """Written by one thread of one process; every reader gets a whole one."""

    def __init__(self, data_dir: Path) -> None:
        self._path = data_dir / FILE_NAME
        self._written: SelfReport | None = None

    def write(self, report: SelfReport) -> None:
        """Write it down if it says something new. Raises OSError."""
        if report != self._written:
            write_private(self._path, json.dumps(asdict(report)), durable=False)
            self._written = report

    def remove(self) -> None:
        with contextlib.suppress(OSError):
            self._path.unlink()

    def read(self) -> SelfReport | None:
        """What a worker wrote last, alive or not; None where there is nothing readable."""
        try:
            content: dict[str, Any] = json.loads(self._path.read_text())
            known = {one.name for one in fields(SelfReport)}  # a newer worker may have written more
            return SelfReport(**{name: value for name, value in content.items() if name in known})
        except (OSError, ValueError, TypeError, AttributeError):
            return None  # none yet, or of a version that said less
