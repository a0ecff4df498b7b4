"""What a request's head must be for an app to be asked; everything else is answered by us. Pure."""

from __future__ import annotations

import re
from http import HTTPStatus

from runtime_proxy.browser_socket import handshake_problem
from runtime_proxy.headers import RawHeaders

# The gateways' own limit is 64 KiB, and we tell the app some 2 KiB more than the browser did.
MAX_HEAD_BYTES = 60 * 1024
MAX_FIELDS = 500  # of a head, and after a body: each costs some 100 bytes of memory besides its own
FRAMING = (b"content-length", b"transfer-encoding")
# What may stand in Host (RFC 3986 §3.2.2); anything else would mean one host to us and another to an app.
_HOST = bytes(set(range(0x21, 0x7F)) - set(b'"#/<>?@\\^`{|}'))


def problem_of(headers: RawHeaders, version: str) -> HTTPStatus | None:
    """Return what a head is answered with that no app shall have to make sense of."""
    if version not in ("1.0", "1.1"):
        return HTTPStatus.HTTP_VERSION_NOT_SUPPORTED
    if len(headers) > MAX_FIELDS:
        return HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts > 1 or (hosts == 0 and version == "1.1"):  # RFC 9112 §3.2
        return HTTPStatus.BAD_REQUEST
    if hosts and headers[names.index(b"host")][1].translate(None, _HOST):
        return HTTPStatus.BAD_REQUEST
    return _problem_of_coding(headers, version) if b"transfer-encoding" in names else None


def _problem_of_coding(headers: RawHeaders, version: str) -> HTTPStatus | None:
    """A body comes counted or chunked (RFC 9112 §6.1); in 1.0 there are no chunks."""
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if version == "1.0":
        return HTTPStatus.BAD_REQUEST
    return None if codings == [b"chunked"] else HTTPStatus.NOT_IMPLEMENTED


def problem_of_handshake(headers: RawHeaders, method: bytes, version: str) -> HTTPStatus | None:
    """Return what a request for a WebSocket is answered with that is none (RFC 6455 §4.1)."""
    if method != b"GET" or version != "1.1":
        return HTTPStatus.BAD_REQUEST
    problem = handshake_problem(headers)
    return None if problem is None else HTTPStatus(problem)


def has_body(headers: RawHeaders) -> bool:
    """Whether the head announces a body."""
    return any(name in FRAMING and value != b"0" for name, value in headers)


def length_of_body(headers: RawHeaders) -> int | None:
    """Return how long the head says the body is; None where it does not say, or there is none."""
    for name, value in headers:
        if name == b"content-length":
            return int(value) or None
    return None


def size_of(target: bytes, headers: RawHeaders) -> int:
    """Return the bytes of a head, nearly."""
    return len(target) + sum(len(name) + len(value) + 4 for name, value in headers)


def origin_form(target: bytes) -> bytes:
    """Return path and query, byte for byte; of a target with scheme and authority what follows them (RFC 9112 §3.2)."""
    if target.startswith(b"/"):
        return target
    scheme, separator, rest = target.partition(b"://")
    if not separator or b"/" in scheme:
        return target
    path = re.search(rb"[/?].*", rest, re.DOTALL)
    return b"/" if path is None else path[0] if path[0].startswith(b"/") else b"/" + path[0]
