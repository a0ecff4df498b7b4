"""Which sockets a process's network namespace listens on, for the diagnosis of an app that never answers."""

from __future__ import annotations

import ipaddress
from pathlib import Path

_LISTEN = "0A"


def listening_sockets(pid: int) -> tuple[str, ...] | None:
    """``address:port`` of each listening TCP socket in the namespace of *pid*; None when that cannot be read."""
    found: set[str] = set()
    readable = False
    for table in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
        except OSError:
            continue
        readable = True
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN:
                found.add(_readable(fields[1]))
    return tuple(sorted(found)) if readable else None


def _readable(entry: str) -> str:
    """``0100007F:1388`` → ``127.0.0.1:5000``. The kernel writes each 32-bit word in the machine's byte order."""
    raw, port = entry.split(":")
    words = [bytes.fromhex(raw[start : start + 8])[::-1] for start in range(0, len(raw), 8)]
    address = ipaddress.ip_address(b"".join(words))
    return f"[{address}]:{int(port, 16)}" if address.version == 6 else f"{address}:{int(port, 16)}"
