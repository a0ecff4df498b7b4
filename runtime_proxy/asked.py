"""How somebody asks: a person's navigation or a program's call, in which language, from within a frame or not."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from django.conf import settings
from django.utils.translation import get_supported_language_variant
from django.utils.translation.trans_real import parse_accept_lang_header

from runtime_proxy.handover import cookie_value


@dataclass(frozen=True, slots=True)
class Asked:
    """What decides between a page, a redirect and JSON."""

    navigation: bool  # a browser shows the answer as a page
    language: str
    framed: bool = False


def asked_of(method: str, headers: Iterable[tuple[bytes, bytes]]) -> Asked:
    """Read it from the request. Clients that send no Sec-Fetch-Mode navigate when they want HTML."""
    fields = dict(headers)
    mode = fields.get(b"sec-fetch-mode")
    wants_page = mode == b"navigate" if mode else b"text/html" in fields.get(b"accept", b"")
    return Asked(
        navigation=method in ("GET", "HEAD") and wants_page,
        language=_language(fields),
        framed=fields.get(b"sec-fetch-dest") in (b"iframe", b"frame"),
    )


def _language(fields: dict[bytes, bytes]) -> str:
    chosen = cookie_value(fields.get(b"cookie", b""), settings.LANGUAGE_COOKIE_NAME)
    accepted = fields.get(b"accept-language", b"").decode("latin-1")
    for code in (chosen, *(code for code, _ in parse_accept_lang_header(accepted))):
        if not code or code == "*":
            continue
        try:
            return get_supported_language_variant(code)
        except LookupError:
            continue
    return str(settings.LANGUAGE_CODE)
