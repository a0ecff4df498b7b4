"""Where the command ``openface-gpu-worker`` begins: it hears a signal to stop before anything else is loaded.

Loading the rest takes half a second, in which a SIGTERM would end the process by the signal, as if it had failed.
"""

import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    words = sys.argv[1:] if argv is None else argv
    if words[:1] == ["run"]:
        for number in (signal.SIGTERM, signal.SIGINT):
            # nothing is begun yet that had to be ended; the worker hears signals in its own way once there is
            signal.signal(number, lambda *_: os._exit(0))
    from gpu_worker.cli import main as command

    return command(words)


if __name__ == "__main__":
    sys.exit(main())
