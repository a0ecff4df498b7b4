"""The device test: does a container that is given one GPU see that one, and no other?

The same request to the engine as for a job, so what fails here fails there. It needs an image in which the driver's
own program can run (glibc); none is fetched for it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from gpu_worker.containers.gpu_trial import GpuTrial
from gpu_worker.errors import EngineError
from gpu_worker.protocol import DoctorCheck, Gpu
from gpu_worker.start_failures import explain

NAME = "device_test"
_LISTED = re.compile(r"UUID: ((?:GPU|MIG)-[^)\s]+)\)")


class Trial(Protocol):
    def image(self, wanted: str | None) -> str | None: ...
    def run(self, image: str, uuid: str) -> tuple[int, str]: ...


def device_test(
    gpus: Sequence[Gpu], *, image: str | None, worker_id: str | None = None, trial: Trial | None = None
) -> list[DoctorCheck]:
    """One check for each GPU that can be given to a job; *image*: the one to use, None: one that is here.

    *worker_id*: whose containers these are; None: nobody is enrolled yet.
    """
    real = [gpu for gpu in gpus if gpu.healthy and not gpu.simulated and not gpu.mig]
    if not real:
        return [DoctorCheck(NAME, None, "no GPU to test")]
    trial = trial or GpuTrial(worker_id=worker_id)
    try:
        chosen = trial.image(image)
    except EngineError as problem:
        return [DoctorCheck(NAME, False, str(problem), "Start Docker.")]
    if chosen is None:
        return [
            DoctorCheck(
                NAME,
                None,
                f"the image {image} is not here" if image else "there is no image here to test with",
                "docker pull python:3.11-slim (or any image with glibc), or name one that is here: --test-image NAME.",
            )
        ]
    return [_test(trial, chosen, gpu) for gpu in real]


def _test(trial: Trial, image: str, gpu: Gpu) -> DoctorCheck:
    name = f"{gpu.model or 'GPU'} ({gpu.uuid})"
    try:
        code, output = trial.run(image, gpu.uuid)
    except EngineError as problem:
        return DoctorCheck(NAME, False, f"{name}: {explain(str(problem))}", "See the check gpu_runtime.")
    seen = _LISTED.findall(output)
    if code != 0 and not seen:
        said = " ".join(output.split())[:300] or f"code {code}"
        remedy = "Try another image with glibc: --test-image NAME." if code in (126, 127) else "See the check driver."
        return DoctorCheck(NAME, None if code in (126, 127) else False, f"{name}: a container says: {said}", remedy)
    if seen == [gpu.uuid]:
        return DoctorCheck(NAME, True, f"{name}: a container sees it, and no other")
    return DoctorCheck(
        NAME,
        False,
        f"{name}: a container that was given it sees {', '.join(seen) or 'none'}",
        "This engine does not give GPUs one by one. Lend the machine with one GPU job at a time (MAX_GPU_JOBS=1).",
    )
