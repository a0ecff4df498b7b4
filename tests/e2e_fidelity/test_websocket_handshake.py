"""The handshakes of WebSockets: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_websocket_handshake import *  # noqa: F403
