"""Which text is a Git LFS pointer: exactly what git-lfs itself takes for one (seen with its version 3.3).

It is generous with line ends of Windows, empty lines and blanks around the whole, and with nothing else. A text that is
not one in its eyes stays as it is, and would be built instead of a model: so it is told apart from any other text.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

SMALLEST_POINTER = 100  # bytes; its three lines cannot be shorter
POINTER_END = 1024  # bytes; what has so many is none, for git-lfs and for its specification
# What Go calls blank.
_BLANKS = " \t\n\v\f\r\x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_VERSION = (
    r"version (?:https://git-lfs\.github\.com/spec/v1|https://hawser\.github\.com/spec/v1|http://git-media\.io/v/2)"
)
_EXTENSIONS = r"(?:ext-\d-\w\S* sha256:[0-9a-f]{64}\n)*"
_POINTER = re.compile(
    rf"{_VERSION}\n(?P<first>{_EXTENSIONS})oid sha256:(?P<oid>[0-9a-f]{{64}})\n(?P<then>{_EXTENSIONS})"
    r"size \+?(?P<size>\d{1,18})\n",
    re.ASCII,
)
_ALIKE = re.compile(rb"\s*(?:\xef\xbb\xbf)?\s*version\s+https?://(?:git-lfs|hawser|git-media)\b(?s:.*?)\boid\s+sha256:")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class PointerText:
    """What a pointer says."""

    oid: str
    size: int
    extended: bool
    """Whether the object is not the file itself, but what an extension of Git LFS made of it."""


def read_pointer(content: bytes) -> PointerText | str | None:
    """What *content* says, as a pointer; why it is none although it looks like one; None: it is another text.

    *content* may be the beginning of a longer file, of at least POINTER_END bytes.
    """
    if len(content) < POINTER_END:
        lines = content.decode(errors="replace").strip(_BLANKS).split("\n")
        text = "".join(f"{line}\n" for one in lines if (line := one.removesuffix("\r")))
        if (pointer := _POINTER.fullmatch(text)) is not None:
            return PointerText(pointer["oid"], int(pointer["size"]), extended=bool(pointer["first"] or pointer["then"]))
    if _ALIKE.match(content) is None:
        return None
    if len(content) >= POINTER_END:
        return f"it has {POINTER_END} bytes or more"
    if content.lstrip().startswith(_BYTE_ORDER_MARK):
        return "it begins with a byte order mark"
    return "its lines are not as git-lfs writes them"
