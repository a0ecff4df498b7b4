"""What has to fit between the portal's address and OPENFACE_RUNTIME_ORIGIN, and what the chosen mode leaves open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from django.apps.config import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Info, Tags, Warning, register

from openface.sites import Kinship, kinship
from spaces import origin_words
from spaces.origin import Mode, mode

SPACE = "{space}"
_SAME_SITE = (
    "Give Spaces a name below the portal's own, as in PUBLIC_BASE_URL=https://openface.example and "
    "OPENFACE_RUNTIME_ORIGIN=https://run.openface.example, or leave it unset."
)
_UNTRUE_KIN = {
    Kinship.ANOTHER_SCHEME: (
        "openface.E023",
        "OPENFACE_RUNTIME_ORIGIN and PUBLIC_BASE_URL differ in http and https: browsers take them for two sites, and "
        "cookies vanish from the portal's frame.",
        "Serve both by https, or both by http.",
    ),
    Kinship.LOCALHOST_AND_NUMBERS: (
        "openface.E024",
        "PUBLIC_BASE_URL and OPENFACE_RUNTIME_ORIGIN name this machine in two ways: browsers take localhost and "
        "127.0.0.1 for two sites, and cookies vanish from the portal's frame.",
        "Write localhost in both, with two ports.",
    ),
    Kinship.FOREIGN: (
        "openface.E025",
        "OPENFACE_RUNTIME_ORIGIN is on another site than PUBLIC_BASE_URL: cookies vanish from the portal's frame, so "
        "that nobody is signed in there.",
        f"{_SAME_SITE} Browsers ask whether both share a domain that somebody can register: two labels at least, and "
        "not one like co.uk. localhost and names without a dot have none; below them, use one name with two ports.",
    ),
}


@register()
def kin(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """The frame needs cookies, and browsers keep them from other sites; `{space}` has one place where it can stand."""
    portal, runtime = urlsplit(settings.PUBLIC_BASE_URL), urlsplit(settings.OPENFACE_RUNTIME_ORIGIN)
    if not all(address.scheme in ("http", "https") and address.hostname for address in (portal, runtime)):
        return []  # E020 says so
    misplaced = _misplaced(settings.OPENFACE_RUNTIME_ORIGIN, runtime.scheme)
    if misplaced:
        return [misplaced]
    untrue = _UNTRUE_KIN.get(kinship(portal, runtime))
    return [Error(untrue[1], hint=untrue[2], id=untrue[0])] if untrue else []


def _misplaced(template: str, scheme: str) -> CheckMessage | None:
    rest = template.removeprefix(f"{scheme}://{SPACE}.")
    if "{" not in rest and "}" not in rest:
        return None
    return Error(
        "OPENFACE_RUNTIME_ORIGIN has {space} where it cannot stand: it is the first label of the host, once.",
        hint="Example: https://{space}.run.openface.example, with a wildcard in the DNS and in the certificate.",
        id="openface.E026",
    )


@register(Tags.security, deploy=True)
def left_open(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Say which mode is on, and what it leaves open. Only `check --deploy` asks."""
    level = Info if mode() == Mode.HOST_PER_SPACE else Warning
    told: list[CheckMessage] = [level(origin_words.mode_name(mode()), hint=_HINTS[mode()], id=_IDS[mode()])]
    told += [Warning(sentence, id="openface.W029") for sentence in origin_words.left_open()]
    return told


_IDS = {
    Mode.SECOND_PORT: "openface.W028",
    Mode.SECOND_HOST: "openface.W028",
    Mode.HOST_PER_SPACE: "openface.I028",
}
_HINTS = {
    Mode.SECOND_PORT: _SAME_SITE,
    Mode.SECOND_HOST: "Where people do not trust each other's Spaces: https://{space}.run.openface.example.",
    Mode.HOST_PER_SPACE: None,
}
