"""A Dockerfile's instructions and heredocs, told apart as its readers do. Pure.

Its author may be hostile and BuildKit's own reading depends on its version, so nothing here decides alone what a build
may do: `readings` gives every way of joining lines, and heredocs are only what a newer BuildKit would not take for
instructions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator

from gpu_worker.errors import JobFailed

# Not one of them belongs into a Dockerfile, and its readers differ in what they take for a blank or a line's end.
_HIDDEN = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\r(?!\n)|\xc2[\x80-\x9f]|\xe2\x80[\xa8\xa9]")
QUOTING = str.maketrans("", "", "\"'\\`")
_TAKES_HEREDOCS = re.compile(r"[ \t]*(?:ONBUILD[ \t]+)?(?:RUN|COPY|ADD)[ \t]", re.IGNORECASE)
_HEREDOC = re.compile(r"(?<!\S)\d*<<(?P<indented>-?)(?P<end>\"[^\"<]+\"|'[^'<]+'|[^\s<\"']+)(?!\S)")
_GOES_ON = re.compile(r"\\[ \t]*\r?\n\Z")


def refuse_hidden(content: bytes) -> None:
    """Raise JobFailed (``dockerfile_unusable``) where a character stands in it that one reader sees and another not."""
    found = _HIDDEN.search(content)
    if found is None:
        return
    number = content.count(b"\n", 0, found.start()) + 1
    code = ord(found[0].decode("utf-8"))
    what = "a carriage return without a line feed" if code == 0x0D else f"the control character U+{code:04X}"
    raise JobFailed("dockerfile_unusable", f"Line {number} of the Dockerfile has {what}, which no build reads alike.")


def readings(text: str) -> Iterator[list[str]]:
    """The instructions, a line each and without quoting, in every way that some BuildKit joins lines."""
    for escape, doubled, indented in itertools.product("\\`", (False, True), (False, True)):
        goes_on = re.compile(("" if doubled else rf"(?<!{re.escape(escape)})") + re.escape(escape) + r"[ \t]*$")
        instructions, open_ = [], ""
        for line in text.split("\n"):
            line = line.removesuffix("\r")
            if line.lstrip().startswith("#") or (open_ and not line.strip()):
                continue  # also in the middle of an instruction
            joined = open_ + (line if indented else line.lstrip())
            if goes_on.search(line):
                open_ = goes_on.sub("", joined)
                continue
            instructions.append(joined.translate(QUOTING))
            open_ = ""
        yield [*instructions, open_.translate(QUOTING)]


def without_heredocs(text: str, change: Callable[[str], str]) -> str:
    """The text with each part between heredocs changed; what stands in heredocs stays byte for byte."""
    parts, outside = [], ""
    instruction, ends = "", list[tuple[str, bool]]()
    for line in re.findall(r"[^\n]*\n|[^\n]+\Z", text):
        if ends:
            parts.append(line)
            end, indented = ends[0]
            written = line.removesuffix("\n").removesuffix("\r")
            if (written.lstrip("\t") if indented else written) == end:
                ends.pop(0)
            continue
        outside += line
        if not line.lstrip().startswith("#"):
            instruction += line
        if _GOES_ON.search(line) is None and not line.lstrip().startswith("#"):
            if _TAKES_HEREDOCS.match(instruction):
                ends = [
                    (found["end"].strip("\"'"), bool(found["indented"])) for found in _HEREDOC.finditer(instruction)
                ]
            instruction = ""
            if ends:
                parts.append(change(outside))
                outside = ""
    return "".join([*parts, change(outside)])
