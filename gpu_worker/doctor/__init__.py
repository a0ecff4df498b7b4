"""Check what this machine needs before it can run jobs. Every check says what it saw and, when bad, what to do.

A check is good, bad, or neither: there is nothing to check here, it cannot be checked from here, or it works but costs
something that the owner may want to know of. None of them changes anything. Only the device test runs something.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import CredentialStore
from gpu_worker.doctor import builds, engine, machine
from gpu_worker.doctor.device_test import device_test
from gpu_worker.doctor.gpu import DriverLook, driver, gpus
from gpu_worker.doctor.network import network, reach
from gpu_worker.errors import ConfigError
from gpu_worker.protocol import DoctorCheck

__all__ = ["examine", "network", "reach"]


def examine(config: WorkerConfig, *, test_device: bool = False, image: str | None = None) -> list[DoctorCheck]:
    """All checks that concern this machine.

    *test_device*: also run a container for each GPU, from *image* or one that is here, and see what it sees.
    """
    own: tuple[Callable[[WorkerConfig], DoctorCheck], ...] = (
        machine.data_dir,
        machine.disk,
        machine.git,
        machine.git_lfs,
    )
    checks = [check(config) for check in own]
    look = DriverLook.now(config)
    if config.executor == "docker":
        facts = engine.ask()
        checks += [engine.engine(facts, config), engine.buildkit(facts), builds.build_limits(facts, config)]
        checks += [driver(look), gpus(look)]
        checks += engine.gpu_support(facts, wanted=look.needs_toolkit)
    else:
        checks += [machine.process_executor(), driver(look), gpus(look)]
    if look.needs_toolkit:
        checks += [machine.pid_namespace(), *machine.wsl2()]
    if test_device and config.executor == "docker":
        checks += device_test(look.report.gpus, image=image or config.base_image or None, worker_id=_worker_id(config))
    return checks


def _worker_id(config: WorkerConfig) -> str | None:
    try:
        credential = CredentialStore(config.data_dir).load()
    except ConfigError:
        return None  # who may not read it may still examine the machine
    return credential.worker_id if credential else None
