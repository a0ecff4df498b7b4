"""The stand-in for the NVIDIA driver, compiled: its library, and the program that lists GPUs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).with_name("nvml_stub.c")
ROOT = Path(__file__).parents[2]
FULL = "uuid=GPU-aaaa name=NVIDIA_RTX_4090 total=24564 free=20000 util=87 temp=71 power=312500 cc=8.9 mig=0"

# Tells what the worker would tell, one line for each line it is asked. Of the processes on a GPU those with an id below
# 1000 belong to leases.
_LOOK = """
import json, os, sys
from pathlib import Path
from gpu_worker import gpus
from gpu_worker.doctor import gpu as doctor
from gpu_worker.gpu_owners import GpuOwners
from gpu_worker.kernel_driver import KernelDriver

probe = None
for line in sys.stdin:
    facts = json.loads(line)
    class Owners(GpuOwners):
        def lease_of(self, pid):
            return f"lease-of-{pid}" if pid < 1000 else None
        def leases_on(self, uuid):
            return facts["given"]
    for name in ("STUB_NVML_INIT", "STUB_NVML_COUNT"):
        os.environ.pop(name, None)
    os.environ.update(facts["environment"])
    gpus.MOST_FOREIGN = facts["most_foreign"]
    gpus.WSL_LIBRARY = Path(facts["wsl_library"])
    kernel = KernelDriver(Path(facts["kernel"]))
    probe = probe if facts["again"] else gpus.NvmlProbe(kernel)
    report = probe.report(Owners(measurable=facts["measurable"]))
    doctor.in_container = lambda: facts["in_container"]
    look = doctor.DriverLook(report, False, True, kernel.version(), facts["cards_on_the_bus"])
    print(json.dumps({
        "gpus": [gpu.wire() for gpu in report.gpus], "count": report.count,
        "driver": report.driver_version, "cuda": report.cuda_version, "error": report.error,
        "unopened_reason": report.unopened_reason,
        "doctor": {check.check: check.wire() for check in (doctor.driver(look), doctor.gpus(look))},
    }), flush=True)
"""
_lookers: dict[Path, subprocess.Popen[str]] = {}


def read_gpus(
    library_dir: Path,
    tmp_path: Path,
    gpus: Sequence[str],
    *,
    given: Sequence[str] = (),
    measurable: bool = True,
    most_foreign: int = 100,
    kernel: Path = Path("/nonexistent"),
    wsl_library: Path = Path("/nonexistent"),
    environment: dict[str, str] | None = None,
    in_container: bool = False,
    cards_on_the_bus: int = 0,
    again: bool = False,
) -> dict[str, Any]:
    """What a worker tells that finds the driver's library in *library_dir*, and these GPUs.

    *given*: the leases that were given each of them; *kernel*: the /proc directory of the driver's module;
    *in_container*, *cards_on_the_bus*: what the doctor, whose checks are told too, finds beside the driver; *again*: it
    is the worker of the look before.
    """
    table = tmp_path / "gpus.txt"
    table.write_text("".join(f"{line}\n" for line in gpus), errors="surrogateescape")
    facts = {
        "given": list(given), "measurable": measurable, "most_foreign": most_foreign, "kernel": str(kernel),
        "wsl_library": str(wsl_library), "in_container": in_container, "cards_on_the_bus": cards_on_the_bus,
        "again": again,
        "environment": {"STUB_NVML_FILE": str(table), **(environment or {})},
    }  # fmt: skip
    looker = _lookers.get(library_dir) or _start_looker(library_dir)
    assert looker.stdin is not None and looker.stdout is not None
    print(json.dumps(facts), file=looker.stdin, flush=True)
    answer: dict[str, Any] = json.loads(looker.stdout.readline())
    return answer


def _start_looker(library_dir: Path) -> subprocess.Popen[str]:
    """A process whose loader finds the stand-in: it looks only when it starts."""
    _lookers[library_dir] = subprocess.Popen(
        [sys.executable, "-c", _LOOK], env={**os.environ, "LD_LIBRARY_PATH": str(library_dir)}, cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    return _lookers[library_dir]


def dismiss_lookers() -> None:
    while _lookers:
        _, looker = _lookers.popitem()
        with looker:
            assert looker.stdin is not None
            looker.stdin.close()


def build_nvml_stub(directory: Path) -> Path:
    """The directory with ``libnvidia-ml.so.1``; skips the test where there is no C compiler."""
    target = directory / "nvml" / "libnvidia-ml.so.1"
    target.parent.mkdir()
    _compile(target, "-shared", "-fPIC", "-Wl,-soname,libnvidia-ml.so.1")
    return target.parent


def build_lister(target: Path) -> Path:
    """A ``nvidia-smi`` that knows ``-L`` only, and needs no library: it runs in an image that is all but empty."""
    _compile(target, "-DLISTER", "-static")
    return target


def _compile(target: Path, *flags: str) -> None:
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler for the stand-in of the driver")
    subprocess.run([compiler, "-O1", "-Wall", "-Werror", *flags, "-o", target, SOURCE], check=True)
