"""What becomes of headers on their way through: hop-by-hop fields, cookies, Location, and the app's own address.

Pure: bytes in, bytes out. Values, their order and repeated lines are kept byte for byte unless a rule here says
otherwise. Names are lower case already, as ASGI hands them over and takes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import product

from runtime_proxy import embedding

RawHeaders = list[tuple[bytes, bytes]]

# RFC 9110 §7.6.1, and two that predate it. What Connection names besides is removed too.
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
# The handshake is made anew on each hop; the subprotocols are offered by whoever dials.
HANDSHAKE = frozenset(
    {
        b"sec-websocket-key",
        b"sec-websocket-version",
        b"sec-websocket-extensions",
        b"sec-websocket-accept",
        b"sec-websocket-protocol",
    }
)
# Who says these speaks for us; a browser that says them is not believed.
# With "_" for "-" too: apps behind CGI or WSGI read both as one name.
_SPEAKS_FOR_US = tuple(b"x%b%b%b" % each for each in product((b"-", b"_"), (b"forwarded", b"openface"), (b"-", b"_")))
_CLAIMS_OF_PROXIES = frozenset({b"forwarded", b"x-real-ip", b"x_real_ip", b"x-real_ip", b"x_real-ip"})
# Answers that would command our own origin or an nginx in front of us, not the app's prefix. A dictionary and a
# registered session (Device Bound Session Credentials) hold for every address of the origin that they name.
_COMMANDS = frozenset(
    {
        b"clear-site-data",
        b"strict-transport-security",
        b"alt-svc",
        b"nel",
        b"report-to",
        b"x-sendfile",
        b"use-as-dictionary",
        b"secure-session-registration",
        b"secure-session-challenge",
        b"sec-session-registration",
        b"sec-session-challenge",
    }
)
_COMMANDS_BY_PREFIX = (b"x-accel-", b"x-openface-")
_NOT_FOR_THE_APP = HOP_BY_HOP | _CLAIMS_OF_PROXIES | {b"host"}
_NOT_FOR_THE_BROWSER = HOP_BY_HOP | HANDSHAKE | _COMMANDS | {embedding.FRAME_OPTIONS}
_USUAL_CONNECTION = frozenset({b"keep-alive", b"close", b"Keep-Alive", b"upgrade", b"Upgrade"})
_NOTHING: frozenset[bytes] = frozenset()

# A browser takes such a cookie only with Path=/.
_HOST_COOKIE = re.compile(rb"\s*__Host-", re.IGNORECASE)
_ABSOLUTE_URL = re.compile(rb"(?:([A-Za-z][A-Za-z0-9+.-]*):)?//([^/?#]*)(.*)", re.DOTALL)
# What neither browsers nor we resolve, decode or take for something else.
_PLAIN_PATH = re.compile(rb"(?:/[A-Za-z0-9_~-][A-Za-z0-9._~-]*)*/?")
# What Python, and so Django, takes for blanks around a cookie's name, and a browser for a part of it.
_BLANKS = bytes([*range(0x09, 0x0E), *range(0x1C, 0x21), 0x85, 0xA0])
_LOOPBACK_HOSTS = (b"localhost", b"127.0.0.1", b"0.0.0.0", b"[::1]")


@dataclass(frozen=True, slots=True)
class Mount:
    """Where an app hangs in our address space, and how it wants to be spoken to."""

    prefix: bytes  # "/run/owner/name", canonical, without a trailing slash
    keep_prefix: bool = False  # the app insists on its base path: do not strip the prefix
    rewrite_host: bool = False  # the app insists on being called localhost
    app_port: int = 7860
    own_host: bool = False  # no other Space has this host

    @property
    def local_host(self) -> bytes:
        return b"localhost:%d" % self.app_port


@dataclass(frozen=True)
class Edge:
    """How the browser called us: what the app must be told, and what its absolute links may name."""

    host: bytes  # the Host header as it came, with its port
    scheme: bytes  # http or https, as the browser saw it
    forwarded_for: bytes  # the caller's address, after those that trusted proxies reported
    portal: bytes = b""  # the portal's origin: it may show the app in a frame

    @cached_property
    def told(self) -> RawHeaders:
        """The headers that tell the app all this."""
        return [
            (b"x-forwarded-host", self.host),
            (b"x-forwarded-proto", self.scheme),
            (b"x-forwarded-for", self.forwarded_for),
            (b"forwarded", _forwarded(self)),
        ]


@dataclass(frozen=True, slots=True)
class PlatformCookies:
    """Which cookies are ours: they never travel to a Space, and no Space may set them."""

    prefixes: tuple[bytes, ...]

    @classmethod
    def named(cls, prefixes: Iterable[str]) -> PlatformCookies:
        return cls(tuple(prefix.lower().encode("latin-1") for prefix in prefixes))

    def owns(self, pair: bytes) -> bool:
        """Whether `name=value` is ours. A nameless `=name=value` reads as that name to a server, so it counts too."""
        return pair.lstrip(_BLANKS + b"=").lower().startswith(self.prefixes)


def to_app(
    raw: Iterable[tuple[bytes, bytes]], *, mount: Mount, edge: Edge, cookies: PlatformCookies, websocket: bool = False
) -> RawHeaders:
    """Return the request headers for the app, Host first. The gateway's own token is not among them."""
    raw = list(raw)
    dropped = _NOT_FOR_THE_APP | _named_in_connection(raw)
    if websocket:
        dropped |= HANDSHAKE
    kept: RawHeaders = [(b"host", mount.local_host if mount.rewrite_host else edge.host)]
    for name, value in raw:
        if name in dropped or name.startswith(_SPEAKS_FOR_US):
            continue
        if name == b"cookie":
            value = _without_platform_cookies(value, cookies)
            if not value:
                continue
        elif name == b"origin" and mount.rewrite_host and value != b"null":
            value = b"http://" + mount.local_host
        kept.append((name, value))
    kept.append((b"x-forwarded-prefix", mount.prefix))
    kept += edge.told
    return kept


def to_browser(
    raw: Iterable[tuple[bytes, bytes]], *, mount: Mount, edge: Edge, cookies: PlatformCookies, status: int = 200
) -> RawHeaders:
    """Return the app's answer headers for the browser."""
    lowered = [(name.lower(), value) for name, value in raw]
    dropped = _NOT_FOR_THE_BROWSER | _named_in_connection(lowered)
    kept: RawHeaders = []
    scopes: list[bytes] = []
    has_policy = False
    for name, value in lowered:
        if name in dropped or name.startswith(_COMMANDS_BY_PREFIX):
            continue
        if name == b"set-cookie":
            if cookies.owns(value):
                continue
            if not (mount.own_host and _HOST_COOKIE.match(value)):
                value = _under_prefix(value, mount.prefix)
        elif name in (b"location", b"content-location"):
            value = relocate(value, mount=mount, edge=edge)
        elif name == embedding.POLICY:
            has_policy = True
            value = embedding.admitting(value, edge.portal)
        elif name == b"service-worker-allowed":
            scopes.append(value)
            continue
        elif name == b"content-length" and (status in (204, 304) or status < 200):
            continue  # such an answer has no body; a server that counts bytes would miss the announced ones
        kept.append((name, value))
    if scopes:
        kept.append((b"service-worker-allowed", _scope(scopes, mount.prefix)))
    # A 304 changes the fields that it has in a stored answer: ours alone would put the app's own policy out of force.
    if has_policy or status not in (101, 304):
        kept.append((embedding.POLICY, embedding.own_policy(edge.portal)))
    kept.append((b"x-accel-buffering", b"no"))
    return kept


def relocate(value: bytes, *, mount: Mount, edge: Edge) -> bytes:
    """Return a Location that leads back through the prefix.

    Absolute paths and absolute URLs of the app itself get the prefix, once; what has it already, what is relative and
    what leads elsewhere stay as they are. Dot segments are never resolved.
    """
    absolute = _ABSOLUTE_URL.match(value)
    if absolute:
        scheme, authority, rest = absolute[1], absolute[2].lower(), absolute[3]
        if (scheme or b"http").lower() not in (b"http", b"https") or authority not in _own_authorities(mount, edge):
            return value
        if not rest.startswith(b"/"):
            rest = b"/" + rest
        return rest if _is_under(rest, mount.prefix) else mount.prefix + rest
    if not value.startswith(b"/") or _is_under(value, mount.prefix):
        return value
    return mount.prefix + value


def app_path(raw_rest: bytes, mount: Mount) -> bytes:
    """Return the path for the app: what followed the prefix, byte for byte, or with the prefix where it is kept."""
    return mount.prefix + raw_rest if mount.keep_prefix else raw_rest


def forwarded_for(peer: str, reported: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Return the X-Forwarded-For to send on: the peer, after what it reported. Pass headers of trusted proxies only."""
    chain = [value for name, value in reported if name == b"x-forwarded-for"]
    return b", ".join([*chain, peer.encode("latin-1")])


def _own_authorities(mount: Mount, edge: Edge) -> frozenset[bytes]:
    return frozenset([edge.host.lower(), *(b"%s:%d" % (host, mount.app_port) for host in _LOOPBACK_HOSTS)])


def _is_under(path: bytes, prefix: bytes) -> bool:
    return path == prefix or path.startswith((prefix + b"/", prefix + b"?", prefix + b"#"))


def _scope(wanted: list[bytes], prefix: bytes) -> bytes:
    """Return how far a service worker of this app may reach, at most to all that is below its prefix.

    Browsers resolve the value as an address, dot segments and `%2e` included, and then compare it as a string, so that
    `/run/o/r` would reach `/run/o/r2` as well. What is not plainly below the prefix becomes the prefix.
    """
    whole = prefix + b"/"
    if len(wanted) == 1 and wanted[0].startswith(whole) and _PLAIN_PATH.fullmatch(wanted[0]):
        return wanted[0]
    return whole


def _named_in_connection(raw: Iterable[tuple[bytes, bytes]]) -> frozenset[bytes]:
    """The fields that Connection calls hop-by-hop. End-to-end ones that we rely on cannot be disowned that way."""
    values = [value for name, value in raw if name == b"connection" and value not in _USUAL_CONNECTION]
    if not values:
        return _NOTHING
    names = {token.strip().lower() for value in values for token in value.split(b",")}
    return frozenset(names - {b"host", b"cookie", b"content-length", b"authorization", b"set-cookie", b"location"})


def _without_platform_cookies(value: bytes, cookies: PlatformCookies) -> bytes:
    pairs = value.split(b";")
    kept = [pair for pair in pairs if not cookies.owns(pair)]
    return value if len(kept) == len(pairs) else b";".join(kept).lstrip(b" ")


def _under_prefix(cookie: bytes, prefix: bytes) -> bytes:
    """Move a Set-Cookie line under the prefix: its Path is put there, its Domain goes, the rest stays byte for byte."""
    parts = cookie.split(b";")
    kept = parts[:1]
    for part in parts[1:]:
        name, equals, value = part.partition(b"=")
        attribute = name.strip().lower()
        if attribute == b"domain":
            continue
        if attribute == b"path" and equals:
            path = value.strip()
            if path.startswith(b"/") and not _is_under(path, prefix):
                part = name + b"=" + prefix + path
        kept.append(part)
    return b";".join(kept)


def _forwarded(edge: Edge) -> bytes:
    """RFC 7239. The nearest hop only: the earlier ones are in X-Forwarded-For."""
    caller = edge.forwarded_for.rsplit(b",", 1)[-1].strip()
    if b":" in caller:
        caller = b'"[%s]"' % caller.strip(b"[]")
    host = edge.host.translate(None, b'"\\')
    return b'for=%s;host="%s";proto=%s' % (caller or b"unknown", host, edge.scheme)
