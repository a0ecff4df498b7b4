"""Behind the nginx of the compose files: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_nginx import *  # noqa: F403
