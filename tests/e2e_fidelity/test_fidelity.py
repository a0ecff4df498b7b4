"""What goes in comes out: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_fidelity import *  # noqa: F403
