"""The worker's settings: environment variables first, command-line flags over them.

Each wrong setting is one sentence that names it (``ConfigError``, exit code 2).
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from gpu_worker import build_settings
from gpu_worker.build_settings import BuildSettings
from gpu_worker.errors import ConfigError
from gpu_worker.job_limits import DEFAULT_PIDS, LimitDefaults
from gpu_worker.settings_values import LONGEST_SHOWN, existing_file, path_in, shown
from gpu_worker.source_limits import SourceLimits
from gpu_worker.whole_numbers import number_in, whole_number

DEFAULT_TOKEN_FILE = Path("/run/secrets/openface-worker-enrollment-token")
DEFAULT_DATA_DIR = Path("/data")
DEFAULT_GATEWAY_PORT = 8787
DEFAULT_MAX_CALLERS_PER_APP = 4096  # as many as the data plane lets visitors have of one Space
DEFAULT_GPU_WATCH_SECONDS = 180
DEFAULT_DOCTOR_SECONDS = 300
DEFAULT_UNKNOWN_LEASE_SECONDS = 24 * 3600  # a day for an operator to look at it, or to restore a newer database
EXECUTORS = ("docker", "process")
_NO_ADDRESS = re.compile(r"[\s\\<>\"{}|^`\x00-\x20\x7f]")
_MOST_MIB = 1024**4  # an exbibyte: only a slip of the hand is above it


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    url: str
    verify_tls: bool | Path = True
    """True: the system's authorities; a path: this bundle; False: no check (said aloud in the log)."""
    name: str = ""
    token_file: Path | None = None
    public_url: str | None = None
    bind_address: str = "127.0.0.1"
    gateway_port: int = DEFAULT_GATEWAY_PORT
    max_gpu_jobs: int = 1
    max_cpu_jobs: int = 2
    max_callers_per_app: int = DEFAULT_MAX_CALLERS_PER_APP
    """Requests and WebSockets that the gateway carries to one app at a time."""
    data_dir: Path = DEFAULT_DATA_DIR
    executor: str = "docker"
    simulate_gpus: Path | None = None
    quiet_above_mib: int | None = None
    """No GPU job is taken while others use more of a GPU; 0: more than a desktop needs; None: whatever they use."""
    doctor_seconds: int = DEFAULT_DOCTOR_SECONDS
    """How often this machine is examined anew while the worker runs; 0: only at its start."""
    gpu_watch_seconds: int = DEFAULT_GPU_WATCH_SECONDS
    """How often it is asked inside a running container whether its GPU is still there; 0: never."""
    limit_defaults: LimitDefaults = field(default_factory=LimitDefaults)
    """For jobs that bring no limits of their own."""
    keep_space_data: bool = True
    """Whether what a Space writes to /data and /cache outlives its container."""
    unknown_lease_seconds: int = DEFAULT_UNKNOWN_LEASE_SECONDS
    """For how long an app is kept (not served) whose lease the control plane does not know."""
    disk_floor_mib: int | None = None
    """What has to stay free of the disk; None: see disk.py."""
    max_space_data_gib: int | None = None
    """What one Space may have on the disk while it runs; None: whatever is there, down to what disk_guard.py keeps."""
    source_limits: SourceLimits = field(default_factory=SourceLimits)
    base_image: str = ""
    """What Dockerfiles with `ARG BASE_IMAGE` build on instead of their default, where no registry is reached."""
    build: BuildSettings = field(default_factory=BuildSettings)
    """For the Dockerfiles that the worker makes."""

    def gateway_url(self, bound_port: int) -> str | None:
        """The address we propose for the control plane's way in; *bound_port* counts when the setting was 0.

        None where only somebody else can know it: we listen on all addresses, as in a container.
        """
        if self.public_url is not None:
            return self.public_url
        if ipaddress.ip_address(self.bind_address).is_unspecified:
            return None
        host = f"[{self.bind_address}]" if ":" in self.bind_address else self.bind_address
        return f"http://{host}:{bound_port}"


def load(
    environ: Mapping[str, str], overrides: Mapping[str, str | None] | None = None, *, local: bool = False
) -> WorkerConfig:
    """Settings from *environ*; a non-empty value in *overrides* (same names, from flags) wins.

    *local*: for a command that calls nobody, so that the control plane's address may be missing. Raises ConfigError
    with one sentence for the first setting that cannot work.
    """
    merged = {key: value.strip() for key, value in environ.items() if value.strip()}
    merged.update({key: value for key, value in (overrides or {}).items() if value})
    return _read(merged, local=local)


def names() -> frozenset[str]:
    """Every name that `load` asks for, whatever is added to it."""
    asked = _Asked()
    _read(asked, local=True)
    return frozenset(asked.names)


class _Asked(Mapping[str, str]):
    """Settings of which none is made; keeps what it is asked for."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0


def _read(merged: Mapping[str, str], *, local: bool) -> WorkerConfig:
    return WorkerConfig(
        url="" if local and not merged.get("OPENFACE_URL") else _control_plane_url(merged),
        verify_tls=_tls(merged),
        name=merged.get("WORKER_NAME", ""),
        token_file=_token_file(merged),
        public_url=_public_url(merged),
        bind_address=_bind_address(merged),
        gateway_port=_number(merged, "GPU_WORKER_PORT", DEFAULT_GATEWAY_PORT, highest=65535),
        max_gpu_jobs=_number(merged, "MAX_GPU_JOBS", 1, highest=64),
        max_cpu_jobs=_number(merged, "MAX_CPU_JOBS", 2, highest=1024),
        max_callers_per_app=_number(
            merged, "MAX_CALLERS_PER_APP", DEFAULT_MAX_CALLERS_PER_APP, lowest=1, highest=1_000_000
        ),
        data_dir=(path_in(merged, "WORKER_DATA_DIR") or DEFAULT_DATA_DIR).absolute(),
        executor=_executor(merged),
        simulate_gpus=existing_file(merged, "OPENFACE_SIMULATE_GPUS"),
        quiet_above_mib=_quiet_above(merged),
        doctor_seconds=_number(merged, "DOCTOR_SECONDS", DEFAULT_DOCTOR_SECONDS, highest=24 * 3600),
        gpu_watch_seconds=_number(merged, "GPU_WATCH_SECONDS", DEFAULT_GPU_WATCH_SECONDS, highest=24 * 3600),
        limit_defaults=_limit_defaults(merged),
        keep_space_data=_flag(merged, "KEEP_SPACE_DATA", default=True),
        unknown_lease_seconds=_number(
            merged, "UNKNOWN_LEASE_SECONDS", DEFAULT_UNKNOWN_LEASE_SECONDS, highest=366 * 24 * 3600
        ),
        disk_floor_mib=_number(merged, "DISK_FLOOR_MIB", 0, highest=_MOST_MIB) if "DISK_FLOOR_MIB" in merged else None,
        max_space_data_gib=_number(merged, "MAX_SPACE_DATA_GIB", 0, highest=1024**2) or None,
        source_limits=_source_limits(merged),
        base_image=merged.get("OPENFACE_BASE_IMAGE", ""),
        build=build_settings.load(merged, base_image=merged.get("OPENFACE_BASE_IMAGE", "")),
    )


def _control_plane_url(values: Mapping[str, str]) -> str:
    url = values.get("OPENFACE_URL", "")
    if not url:
        raise ConfigError(
            "OPENFACE_URL is not set: it is the address of the control plane, for example http://openface.lan:8090."
        )
    return _http_url("OPENFACE_URL", url)


def _public_url(values: Mapping[str, str]) -> str | None:
    url = values.get("WORKER_PUBLIC_URL")
    return _http_url("WORKER_PUBLIC_URL", url) if url else None


def _http_url(name: str, url: str) -> str:
    """Raises ConfigError also for what `urlsplit` lets through and no call could use."""
    try:
        parts = urlsplit(url)
        port = parts.port  # looked at here, and only here
    except ValueError as problem:
        raise ConfigError(f"{name} is {shown(url)}, which is not an address: {str(problem)[:LONGEST_SHOWN]}.") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or _NO_ADDRESS.search(url):
        raise ConfigError(f"{name} is {shown(url)}, which is not an http:// or https:// address.")
    if port == 0:
        raise ConfigError(f"{name} is {shown(url)}, and nobody can be called at port 0.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ConfigError(f"{name} must be a plain address without user, query or fragment.")
    return url.rstrip("/")


def _tls(values: Mapping[str, str]) -> bool | Path:
    ca_file = existing_file(values, "OPENFACE_CA_FILE")
    return (ca_file or True) if _flag(values, "OPENFACE_VERIFY_TLS", default=True) else False


def _flag(values: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = values.get(name, str(default)).lower()
    if text not in ("true", "1", "yes", "on", "false", "0", "no", "off"):
        raise ConfigError(f"{name} is {shown(text)}; it is true or false.")
    return text in ("true", "1", "yes", "on")


def _token_file(values: Mapping[str, str], default: Path = DEFAULT_TOKEN_FILE) -> Path | None:
    named, alias = path_in(values, "WORKER_ENROLLMENT_TOKEN_FILE"), path_in(values, "WORKER_TOKEN_FILE")
    if named is not None:
        return named
    # compose files in the field set the alias to one name and put the token into the directory under the other
    if alias is not None and (alias.exists() or not default.exists()):
        return alias
    return default if default.exists() else None


def _bind_address(values: Mapping[str, str]) -> str:
    address = values.get("GPU_WORKER_BIND_ADDRESS", "127.0.0.1")
    try:
        return str(ipaddress.ip_address(address))
    except ValueError:
        raise ConfigError(
            f"GPU_WORKER_BIND_ADDRESS is {shown(address)}, which is not an IP address of this machine."
        ) from None


def _number(values: Mapping[str, str], name: str, default: int, *, highest: int, lowest: int = 0) -> int:
    number = whole_number(values, name, lowest=lowest, highest=highest)
    return default if number is None else number


def _quiet_above(values: Mapping[str, str]) -> int | None:
    text = values.get("QUIET_WHEN_GPU_BUSY", "false").lower()
    if text in ("false", "no", "off"):
        return None
    if text in ("true", "yes", "on"):
        return 0
    mib = number_in(text, lowest=1, highest=16 * 1024 * 1024)
    if mib is None:
        raise ConfigError(f"QUIET_WHEN_GPU_BUSY is {shown(text)}; it is true, false, or a number of MiB from 1.")
    return mib


def _source_limits(values: Mapping[str, str]) -> SourceLimits:
    usual = SourceLimits()
    return SourceLimits(
        mib=_number(values, "MAX_SOURCE_MIB", usual.mib, lowest=1, highest=_MOST_MIB),
        files=_number(values, "MAX_SOURCE_FILES", usual.files, lowest=1, highest=100_000_000),
        lfs_mib=_number(values, "MAX_LFS_MIB", usual.lfs_mib, highest=_MOST_MIB),
    )


def _limit_defaults(values: Mapping[str, str]) -> LimitDefaults:
    return LimitDefaults(
        # the engine refuses less than 6 MiB
        memory_mib=_number(values, "JOB_MEMORY_MIB", 0, lowest=6, highest=16 * 1024 * 1024) or None,
        cpus=_cpus(values),
        pids=_number(values, "JOB_PIDS", DEFAULT_PIDS, lowest=1, highest=4_194_304),
    )


def _cpus(values: Mapping[str, str]) -> float | None:
    text = values.get("JOB_CPUS")
    if text is None:
        return None
    if re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,2})?", text, re.ASCII) is None or float(text) < 0.01:
        raise ConfigError(f"JOB_CPUS is {shown(text)}; it is a number of CPUs such as 4 or 0.5.")
    return float(text)


def _executor(values: Mapping[str, str]) -> str:
    executor = values.get("OPENFACE_EXECUTOR", "docker")
    if executor not in EXECUTORS:
        raise ConfigError(
            f"OPENFACE_EXECUTOR is {shown(executor)}; the executor is docker, or process for demos and tests."
        )
    return executor
