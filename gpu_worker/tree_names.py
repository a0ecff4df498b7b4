"""Names in a repository: git and Linux keep bytes, Python text that may be no Unicode, and people read one line.

A name may hold everything but NUL: bytes that are no UTF-8, line ends, what moves a terminal's cursor or turns a line
around. None of it may reach a log or a sentence as it is, or whoever may push writes lines there that look like ours.
"""

from __future__ import annotations

LONGEST_SHOWN = 200  # characters; git takes names of 4096 bytes, and a sentence has more to say than one of them
_SHORT = {"\a": "\\a", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\v": "\\v", "\f": "\\f", "\r": "\\r"}
_ZERO_WIDTH_JOINER = "\u200d"  # within many an emoji


def shown(name: str) -> str:
    """The name for people: as it is where it prints, else in the quotes and escapes that git itself uses for it.

    *name* as `os.fsdecode` makes it. A long one is shown without its middle.
    """
    if len(name) > LONGEST_SHOWN:
        name = f"{name[: LONGEST_SHOWN // 2]}…{name[-LONGEST_SHOWN // 2 :]}"
    escaped = "".join("\\" + one if one in '"\\' else _plain(one) for one in name)
    return name if escaped == name else f'"{escaped}"'


def one_line(text: str) -> str:
    """A sentence that has such names in it unquoted: what does not print is escaped."""
    return "".join(map(_plain, text))


def _plain(character: str) -> str:
    if character.isprintable() or character == _ZERO_WIDTH_JOINER:
        return character
    if character in _SHORT:
        return _SHORT[character]
    if "\udc80" <= character <= "\udcff":  # a byte that is no UTF-8
        return f"\\{ord(character) - 0xDC00:03o}"
    return "".join(f"\\{byte:03o}" for byte in character.encode("utf-8", "surrogatepass"))
