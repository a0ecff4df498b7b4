"""HTTP/1.1 message heads (RFC 9112), as far as a relay must know them; pure.

Strict where leniency would let two readers disagree (request smuggling): a head that is not exactly lines of text with
names and values is none. Otherwise byte for byte: a field passes as the line that it came in.
"""

from __future__ import annotations

import re
from functools import lru_cache

_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_REQUEST_LINE = re.compile(rb"([!#$%&'*+\-.^_`|~0-9A-Za-z]+) ([^\x00-\x20\x7f]+) HTTP/1\.([01])")
TEXT = bytes((9, *range(0x20, 0x7F), *range(0x80, 0x100)))  # no VT, FF, FS to RS: some readers take them for line ends
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?: ([\t\x20-\x7e\x80-\xff]*))?")
HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-connection",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"te",
        b"trailer",
        b"upgrade",
    }
)
"""Fields for one connection only (RFC 9110 §7.6.1). Transfer-Encoding stays: a chunked body is chunked again."""
FRAMING = frozenset({b"transfer-encoding", b"content-length"})
_NOTED = FRAMING | {b"connection", b"upgrade"}
LONGEST_HEAD_BYTES = 64 * 1024
_KNOWN_NAMES: dict[bytes, bytes] = {}
"""Names of fields as they were written, and in lower case: checked once, since the same few come again and again."""
_MOST_KNOWN_NAMES, _LONGEST_KNOWN_NAME = 1000, 64  # bytes of the longest; both so that nobody can fill our memory


class BadMessage(Exception):
    """The peer does not speak HTTP/1.1 as we understand it."""


class HeadTooLong(Exception):
    """The other side sent a head above our limit."""


class HeadReader:
    """Collects one message head from what arrives, in whatever pieces."""

    __slots__ = ("_held", "rest")

    def __init__(self) -> None:
        self._held = bytearray()
        self.rest = b""
        """What came after the last head that was taken."""

    @property
    def has_begun(self) -> bool:
        """Whether a part of a head has arrived."""
        return bool(self._held)

    def take(self, data: bytes) -> bytes | None:
        """The head with its empty line, once it is complete. Raises HeadTooLong."""
        held = self._held
        searched = max(0, len(held) - 3)
        if not held:
            end = data.find(b"\r\n\r\n")
            if 0 < end <= LONGEST_HEAD_BYTES and not data.startswith(b"\r\n"):  # the usual case: it came whole
                self.rest = data[end + 4 :]
                return data[: end + 4]
        held += data
        while held.startswith(b"\r\n"):
            del held[:2]  # RFC 9112 §2.2: an empty line before a request is ignored
        end = held.find(b"\r\n\r\n", searched)
        if 0 <= end <= LONGEST_HEAD_BYTES:
            head, self.rest = bytes(held[: end + 4]), bytes(held[end + 4 :])
            held.clear()
            return head
        if len(held) > LONGEST_HEAD_BYTES:
            raise HeadTooLong(f"the head is longer than {LONGEST_HEAD_BYTES} bytes")
        return None


class Head:
    """The fields of a message. *lines* are in order and as they came; *keys* are their names in lower case.

    Only what frames the body is written anew, so that no odd blank in it is read in two ways.
    """

    __slots__ = ("codings", "connection", "is_framed", "keys", "lengths", "lines", "minor_version", "upgrades")

    def __init__(self, lines: list[bytes], minor_version: int) -> None:
        """Raises BadMessage where *lines* are no fields; their characters were looked at before (`_lines`)."""
        self.minor_version = minor_version
        self.lines, self.keys = lines, _keys(lines)
        self.lengths: list[bytes] = []
        self.codings: list[bytes] = []
        self.upgrades: list[bytes] = []
        self.connection: frozenset[bytes] = frozenset()
        """The words of Connection, in lower case."""
        self.is_framed = False
        """Whether it says anything of a body."""
        if not _NOTED.isdisjoint(self.keys):
            self._note()

    def _note(self) -> None:
        for at, key in enumerate(self.keys):
            if key not in _NOTED:
                continue
            name, _, value = self.lines[at].partition(b":")
            value = value.strip(b" \t")
            if key == b"connection":
                self.connection |= _words(value)
            elif key == b"upgrade":
                self.upgrades.append(value)
            else:
                self.is_framed = True
                self.lines[at] = name + b": " + value
                (self.lengths if key == b"content-length" else self.codings).append(value)

    def values(self, name: bytes) -> list[bytes]:
        """All values of a field."""
        if name not in self.keys:
            return []
        pairs = zip(self.keys, self.lines, strict=True)
        return [line[len(name) + 1 :].strip(b" \t") for key, line in pairs if key == name]

    def without(self, dropped: frozenset[bytes], prefix: bytes | None = None) -> list[bytes]:
        """The lines for the next hop: none of *dropped*, none named in Connection, none that begins with *prefix*."""
        if self.connection:
            dropped |= self.connection - FRAMING  # naming these there must not unframe a body
        pairs = zip(self.keys, self.lines, strict=True)
        if prefix is None:
            return [line for key, line in pairs if key not in dropped]
        return [line for key, line in pairs if key not in dropped and not key.startswith(prefix)]

    @property
    def upgrade(self) -> bytes | None:
        """The protocol asked for, None when the connection stays HTTP."""
        return self.upgrades[0] if self.upgrades and b"upgrade" in self.connection else None

    @property
    def keeps_alive(self) -> bool:
        return b"close" not in self.connection if self.minor_version else b"keep-alive" in self.connection


class Request(Head):
    __slots__ = ("method", "target")

    def __init__(self, lines: list[bytes], minor_version: int, method: bytes, target: bytes) -> None:
        super().__init__(lines, minor_version)
        self.method, self.target = method, target


class Response(Head):
    __slots__ = ("reason", "status")

    def __init__(self, lines: list[bytes], minor_version: int, status: int, reason: bytes) -> None:
        super().__init__(lines, minor_version)
        self.status, self.reason = status, reason


def parse_request(data: bytes) -> Request:
    """Raises BadMessage."""
    first, lines = _lines(data)
    match = _REQUEST_LINE.fullmatch(first)
    if match is None:
        raise BadMessage("request line")
    return Request(lines, int(match[3]), match[1], match[2])


def parse_response(data: bytes) -> Response:
    """Raises BadMessage."""
    first, lines = _lines(data)
    match = _STATUS_LINE.fullmatch(first)
    if match is None:
        raise BadMessage("status line")
    return Response(lines, int(match[1]), int(match[2]), match[3] or b"")


def _lines(data: bytes) -> tuple[bytes, list[bytes]]:
    """The first line and the others, of text and nothing else."""
    lines = data[:-4].split(b"\r\n")
    # what is not text must be the line ends that we have split at: no bare CR or LF, no NUL, nothing like that
    if len(data.translate(None, TEXT)) != 2 * (len(lines) + 1):
        raise BadMessage("a head that is not text")
    return lines[0], lines[1:]


@lru_cache(maxsize=64)
def _words(value: bytes) -> frozenset[bytes]:
    return frozenset(word.strip(b" \t").lower() for word in value.split(b",")) - {b""}


def _keys(lines: list[bytes]) -> list[bytes]:
    """The names of the fields in lower case. Raises BadMessage."""
    try:
        return [_KNOWN_NAMES[line[: line.index(b":")]] for line in lines]
    except (KeyError, ValueError):
        return [field_key(line) for line in lines]


def field_key(line: bytes) -> bytes:
    """The name of a field in lower case. Raises BadMessage where *line* is none."""
    name, colon, _ = line.partition(b":")
    if not colon or _TOKEN.fullmatch(name) is None:
        raise BadMessage("field name")  # covers folded lines and space before the colon too
    key = name.lower()
    if len(name) <= _LONGEST_KNOWN_NAME and len(_KNOWN_NAMES) < _MOST_KNOWN_NAMES:
        _KNOWN_NAMES[name] = key
    return key


def write_head(first: bytes, lines: list[bytes]) -> bytes:
    return b"\r\n".join([first, *lines, b"", b""])
