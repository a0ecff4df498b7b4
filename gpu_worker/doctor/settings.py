"""The settings file: whether each name in it is one that somebody reads, and whether they fit who this worker is."""

from __future__ import annotations

import os
from collections.abc import Mapping

from gpu_worker import config, settings_file
from gpu_worker.config import WorkerConfig
from gpu_worker.credentials import CredentialStore
from gpu_worker.errors import ConfigError
from gpu_worker.protocol import DoctorCheck


def settings(config_: WorkerConfig, environ: Mapping[str, str] = os.environ) -> list[DoctorCheck]:
    """Nothing where there is no file and nothing odd. An odd name stops nothing, so it is a note."""
    path, said = settings_file.path_of(environ), settings_file.from_file(environ)
    odd = settings_file.misspelt(said, config.names())
    if odd:
        detail = f"{path}: {'; '.join(odd)}"
        return [DoctorCheck("settings", None, detail, f"Correct {path}, and restart the worker."), *_name(config_)]
    good = [DoctorCheck("settings", True, f"{path}: every name is known")] if said else []
    return good + _name(config_)


def _name(config_: WorkerConfig) -> list[DoctorCheck]:
    try:
        credential = CredentialStore(config_.data_dir).load()
    except ConfigError:
        return []  # who may not read it may still examine the machine
    if credential is None or config_.name in ("", credential.name):
        return []
    detail = f"WORKER_NAME is {config_.name}, but this worker was enrolled as {credential.name}, and stays that"
    return [DoctorCheck("name", None, detail, "Correct WORKER_NAME, or leave it empty.")]
