"""Apps that lie about their answers: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_hostile_apps import *  # noqa: F403
