"""Frames of WebSockets: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_websocket_relay import *  # noqa: F403
