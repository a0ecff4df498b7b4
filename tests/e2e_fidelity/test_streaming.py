"""Nothing is collected on the way: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_streaming import *  # noqa: F403
