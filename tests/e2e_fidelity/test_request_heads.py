"""Requests that no browser sends: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_request_heads import *  # noqa: F403
