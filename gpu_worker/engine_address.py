"""Which engine Docker's own command line would talk to, so that the worker runs containers where its builds end up.

As it does: ``DOCKER_HOST``, else the context that ``DOCKER_CONTEXT`` names, else the one that ``docker context use``
has chosen, else the local socket. The SDK knows the first and the last of these only.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from gpu_worker.errors import EngineSilent
from gpu_worker.settings_values import shown

LOCAL = "unix:///var/run/docker.sock"
DEFAULT_CONTEXT = "default"  # what it calls being in no context


@dataclass(frozen=True)
class EngineAddress:
    url: str = LOCAL
    context: str | None = None
    """The context that names it; None: DOCKER_HOST and its companions do, or nothing."""
    tls_dir: Path | None = None
    """Where the context keeps ``ca.pem``, ``cert.pem`` and ``key.pem``; None: it has none."""
    verify: bool = True

    def __str__(self) -> str:
        return self.url if self.context is None else f"{self.url} (context {self.context})"


def engine_address(environ: Mapping[str, str] = os.environ) -> EngineAddress:
    """Raises EngineSilent, with a sentence, where a context is named that is not there, or what is named cannot be."""
    address = _named(environ)
    try:
        parts = urlsplit(address.url)
        _ = parts.port  # looked at here, and only here
    except ValueError as problem:
        raise EngineSilent(f"The engine's address {shown(str(address))} is none: {problem}.") from problem
    if parts.scheme == "ssh":
        raise EngineSilent(f"The engine at {shown(str(address))} cannot be used: a worker does not go through ssh.")
    return address


def _named(environ: Mapping[str, str]) -> EngineAddress:
    if environ.get("DOCKER_HOST"):
        return EngineAddress(environ["DOCKER_HOST"])
    directory = Path(environ.get("DOCKER_CONFIG") or Path(environ.get("HOME") or "/") / ".docker")
    name = environ.get("DOCKER_CONTEXT") or _chosen(directory)
    return EngineAddress() if name == DEFAULT_CONTEXT else _of_context(name, directory)


def _chosen(directory: Path) -> str:
    try:
        return str(json.loads((directory / "config.json").read_text()).get("currentContext") or DEFAULT_CONTEXT)
    except (OSError, ValueError, AttributeError):
        return DEFAULT_CONTEXT


def _of_context(name: str, directory: Path) -> EngineAddress:
    place = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    try:
        meta = json.loads((directory / "contexts" / "meta" / place / "meta.json").read_text())
        told = meta["Endpoints"]["docker"]
        url, verify = str(told.get("Host") or LOCAL), not told.get("SkipTLSVerify", False)
    except FileNotFoundError:
        raise EngineSilent(f"There is no Docker context {name!r} in {directory} (docker context ls).") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise EngineSilent(f"The Docker context {name!r} in {directory} cannot be read: {problem}.") from problem
    tls_dir = directory / "contexts" / "tls" / place / "docker"
    return EngineAddress(url, name, tls_dir if tls_dir.is_dir() else None, verify)
