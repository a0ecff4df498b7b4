"""A signal to stop is heard whatever the main thread is doing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

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
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=ROOT, timeout=60, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")


# How the console script begins, and how the module does.
SCRIPT = "import sys; from gpu_worker.__main__ import main; sys.exit(main())"


@pytest.mark.parametrize("number", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("start", [("-c", SCRIPT), ("-m", "gpu_worker")], ids=["script", "module"])
def test_a_signal_while_the_rest_is_still_being_loaded_is_a_stop_as_asked(
    tmp_path: Path, start: tuple[str, str], number: str
) -> None:
    (tmp_path / "docker").mkdir()  # the first of the large libraries; here it is loaded just when the signal comes
    (tmp_path / "docker" / "__init__.py").write_text(
        f"import os, signal, time\nos.kill(os.getpid(), signal.{number})\ntime.sleep(60)\n"
    )
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{tmp_path}:{ROOT}"}

    done = subprocess.run([sys.executable, *start, "run"], env=environment, cwd=ROOT, timeout=50, capture_output=True)

    assert (done.returncode, done.stderr) == (0, b"")
