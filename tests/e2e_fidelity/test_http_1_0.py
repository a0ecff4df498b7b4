"""Clients of HTTP/1.0: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_http_1_0 import *  # noqa: F403
