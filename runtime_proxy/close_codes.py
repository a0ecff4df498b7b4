"""How a WebSocket ends: the codes that we say ourselves, and what of one side's code the other may be told. Pure."""

from __future__ import annotations

from websockets.frames import EXTERNAL_CLOSE_CODES

NORMAL, GOING_AWAY, PROTOCOL_ERROR, BAD_TEXT, TOO_BIG = 1000, 1001, 1002, 1007, 1009
SERVICE_RESTART, BAD_GATEWAY = 1012, 1014
NO_LONGER_ADMITTED = 4403

NOT_ADMITTED_ANY_MORE = "You may not see this Space any more, or it has moved."
APP_BROKE = "The app's connection broke."
SERVER_RESTARTS = "The server restarts."


def may_be_sent(code: int) -> bool:
    """Whether a close frame may carry the code (RFC 6455 §7.4): 1006 and 1015 are for local use only."""
    return code in EXTERNAL_CLOSE_CODES or 3000 <= code < 5000


def for_app(code: int | None) -> int:
    """Return what the app is told of the browser's code. None: it closed without one."""
    if code is None:
        return NORMAL
    return code if may_be_sent(code) else GOING_AWAY


def for_browser(code: int | None) -> int:
    """Return what the browser is told of the app's code. None: it closed without one."""
    if code is None:
        return NORMAL
    return code if may_be_sent(code) else BAD_GATEWAY
