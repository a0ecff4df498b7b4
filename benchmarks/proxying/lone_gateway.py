"""A worker's gateway in a process of its own, so that nothing else of a worker is in its figures.

Arguments: the port, and the routes as JSON: [[lease id, the app's port, SHA-256 of the runtime token], …].
"""

from __future__ import annotations

import json
import signal
import sys

from gpu_worker.gateway import Gateway


def main() -> None:
    gateway = Gateway("127.0.0.1", int(sys.argv[1]))
    gateway.start()
    for lease, port, digest in json.loads(sys.argv[2]):
        gateway.open(lease, ("127.0.0.1", port), digest)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})
    gateway.stop()


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGINT})
    main()
