"""A bad configuration is told in a sentence before anything starts."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.core.exceptions import ImproperlyConfigured

GENERATE = "python -c 'import secrets; print(secrets.token_hex(32))'"


@register(Tags.security)
def keys(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The three keys without which nothing is safe."""
    problems: list[CheckMessage] = []
    try:
        secret_key = settings.SECRET_KEY
    except ImproperlyConfigured:  # how Django says that it is empty
        secret_key = ""
    if len(secret_key) < 32:
        problems.append(
            Error(
                "SECRET_KEY is missing or shorter than 32 characters.",
                hint=f"Set SECRET_KEY, or SECRET_KEY_FILE to a file that holds it. Make one with: {GENERATE}",
                id="openface.E001",
            )
        )
    problems += _key_list("OPENFACE_LEASE_KEYS", settings.OPENFACE_LEASE_KEYS, "openface.E002")
    problems += _key_list("OPENFACE_ENCRYPTION_KEYS", settings.OPENFACE_ENCRYPTION_KEYS, "openface.E003")
    return problems


def _key_list(name: str, entries: list[str], code: str) -> list[CheckMessage]:
    hint = f'"id:hex" with 32 bytes each, newest first, separated by commas; one key: echo k1:$({GENERATE})'
    if not entries:
        return [Error(f"{name} is missing.", hint=f"Set {name} or {name}_FILE: {hint}", id=code)]
    for entry in entries:
        key_id, _, key = entry.partition(":")
        if not key_id or not _is_hex(key, least_bytes=32):
            return [Error(f"{name} has an entry that is not a key.", hint=hint, id=code)]
    ids = [entry.partition(":")[0] for entry in entries]
    if len(ids) != len(set(ids)):
        return [Error(f"{name} names one id twice.", hint=hint, id=code)]
    return []


def _is_hex(text: str, *, least_bytes: int) -> bool:
    try:
        return len(bytes.fromhex(text)) >= least_bytes
    except ValueError:
        return False


@register()
def intervals(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Intervals that would make workers flap."""
    problems: list[CheckMessage] = []
    heartbeat = settings.OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS
    stale = settings.OPENFACE_GPU_WORKER_STALE_SECONDS
    lease = settings.OPENFACE_GPU_WORKER_LEASE_SECONDS
    if min(heartbeat, stale, lease) <= 0:
        problems.append(
            Error("Heartbeat, lease and stale seconds must be greater than zero.", id="openface.E010"),
        )
    elif heartbeat > stale / 4:
        problems.append(
            Error(
                f"OPENFACE_GPU_WORKER_HEARTBEAT_SECONDS ({heartbeat:g}) is more than a quarter of "
                f"OPENFACE_GPU_WORKER_STALE_SECONDS ({stale:g}): one lost heartbeat would mark a worker offline.",
                hint="Raise the stale seconds or lower the heartbeat seconds.",
                id="openface.E011",
            )
        )
    elif heartbeat > lease / 2:
        problems.append(
            Error(
                f"OPENFACE_GPU_WORKER_LEASE_SECONDS ({lease:g}) is less than two heartbeats ({heartbeat:g} each): "
                "leases would expire between renewals.",
                id="openface.E012",
            )
        )
    return problems


@register()
def addresses(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Addresses that would let a Space act as the portal, or that are no addresses."""
    problems: list[CheckMessage] = []
    public, runtime = urlsplit(settings.PUBLIC_BASE_URL), urlsplit(settings.OPENFACE_RUNTIME_ORIGIN)
    for name, url in (("PUBLIC_BASE_URL", public), ("OPENFACE_RUNTIME_ORIGIN", runtime)):
        if url.scheme not in {"http", "https"} or not url.hostname or url.path not in {"", "/"}:
            hint = "Example: https://openface.example"
            problems.append(Error(f"{name} is not an http(s) origin.", hint=hint, id="openface.E020"))
    if not problems and (public.scheme, public.netloc) == (runtime.scheme, runtime.netloc):
        problems.append(
            Error(
                "OPENFACE_RUNTIME_ORIGIN is the portal's own origin: pages of Spaces could act as visitors there.",
                hint="Give /run a second host name, or leave it unset for the same host on the next port.",
                id="openface.E021",
            )
        )
    for name in ("OPENFACE_TRUSTED_PROXIES", "OPENFACE_GPU_WORKER_NETWORKS"):
        for entry in getattr(settings, name):
            try:
                ipaddress.ip_network(entry, strict=False)
            except ValueError:
                hint = "Example: 192.168.1.0/24"
                problems.append(Error(f"{name}: {entry!r} is no address or network.", hint=hint, id="openface.E022"))
    return problems


@register()
def database(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Which database, and that it is PostgreSQL."""
    if "postgresql" not in settings.DATABASES["default"].get("ENGINE", ""):
        hint = "DATABASE_URL=postgres://user:password@host:5432/openface_metrics"
        return [Error("The database must be PostgreSQL: the queue lives on it.", hint=hint, id="openface.E030")]
    if settings.OPENFACE_DATABASE_EMBEDDED and not settings.DATABASE_URL:
        return [
            Warning(
                "No database is configured, and the embedded one is not running.",
                hint="Start it with `manage.py up`, or set DATABASE_URL.",
                id="openface.W031",
            )
        ]
    return []
