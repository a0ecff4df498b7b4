"""What git says, on its way into the build log: each line marked as git's, and with nothing in it but text.

git writes names of a repository, a server's remarks and an LFS program's words as they are. A line end in one of them
would begin a line that looks like the worker's own, and an escape sequence could rewrite those above.
"""

from __future__ import annotations

from collections.abc import Callable

from gpu_worker.tree_names import one_line

MARK = "git: "
LONGEST_BYTES = 4096  # of a line; it goes on in the next one


class GitWords:
    def __init__(self, output: Callable[[bytes], None]) -> None:
        self._output = output
        self._rest = b""

    def hear(self, data: bytes) -> None:
        """Pass on what is whole by now. A carriage return ends a line as well: it would begin it anew."""
        *lines, self._rest = (self._rest + data).replace(b"\r", b"\n").split(b"\n")
        while len(self._rest) > LONGEST_BYTES:
            lines.append(self._rest[:LONGEST_BYTES])
            self._rest = self._rest[LONGEST_BYTES:]
        self._say(lines)

    def end(self) -> None:
        """git has ended; so has its last line."""
        rest, self._rest = self._rest, b""
        self._say([rest])

    def _say(self, lines: list[bytes]) -> None:
        told = [f"{MARK}{one_line(line.decode(errors='surrogateescape'))}\n" for line in lines if line.strip()]
        if told:
            self._output("".join(told).encode())
