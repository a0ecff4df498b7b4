"""How somebody asks: a person's navigation or a program's call, in which language, from within a frame or not."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from django.conf import settings
from django.utils.translation import get_supported_language_variant
from django.utils.translation.trans_real import parse_accept_lang_header

from runtime_proxy.handover import cookie_value


class Asked:
    """What decides between a page, a redirect and JSON. Read when it is needed: proxied requests never need it."""

    def __init__(self, method: str, headers: Iterable[tuple[bytes, bytes]], *, websocket: bool = False) -> None:
        self._method = method
        self._headers = headers
        self._websocket = websocket

    @cached_property
    def navigation(self) -> bool:
        """Whether a browser shows the answer as a page. Clients without Sec-Fetch-Mode navigate when they want HTML."""
        if self._websocket or self._method not in ("GET", "HEAD"):
            return False
        mode = self._fields.get(b"sec-fetch-mode")
        return mode == b"navigate" if mode else b"text/html" in self._fields.get(b"accept", b"")

    @cached_property
    def framed(self) -> bool:
        """Whether the page is shown within another."""
        return self._fields.get(b"sec-fetch-dest") in (b"iframe", b"frame")

    @cached_property
    def language(self) -> str:
        """The visitor's choice, else the browser's, else the installation's."""
        chosen = cookie_value(self._fields.get(b"cookie", b""), settings.LANGUAGE_COOKIE_NAME)
        accepted = self._fields.get(b"accept-language", b"").decode("latin-1")
        for code in (chosen, *(code for code, _ in parse_accept_lang_header(accepted))):
            if not code or code == "*":
                continue
            try:
                return get_supported_language_variant(code)
            except LookupError:
                continue
        return str(settings.LANGUAGE_CODE)

    @cached_property
    def _fields(self) -> dict[bytes, bytes]:
        return dict(self._headers)
