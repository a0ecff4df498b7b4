"""How an exchange ends: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_upstream_ends import *  # noqa: F403
