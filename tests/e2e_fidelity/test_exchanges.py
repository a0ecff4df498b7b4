"""Between request and answer: what tests/runtime_proxy promises, asked of the processes and a container."""

from __future__ import annotations

from tests.runtime_proxy.test_exchanges import *  # noqa: F403
