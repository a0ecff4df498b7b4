"""A signal to stop is heard whatever the main thread is doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, signal, threading
from gpu_worker.stop_signals import StopSignals

heard, numbers = threading.Event(), []

def hear(number):
    numbers.append(number)
    heard.set()

signals = StopSignals(hear)
with heard._cond:  # as in the middle of heard.wait(), where the main thread is several times a second
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(1000):  # the interpreter runs handlers between two of its steps
        pass
assert heard.wait(20)
heard.clear()
os.kill(os.getpid(), signal.SIGINT)
assert heard.wait(20)
assert numbers == [signal.SIGTERM, signal.SIGINT]
"""


def test_a_signal_is_heard_also_while_the_main_thread_holds_the_very_lock() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=Path(__file__).parents[2], timeout=60, capture_output=True, text=True
    )

    assert (done.returncode, done.stderr) == (0, "")
