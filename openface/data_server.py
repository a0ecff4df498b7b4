"""The data plane as a program: `python -m openface.data_server`. The options of its server are here and nowhere else.

A listening socket can be handed on, by `--fd N` or as systemd does it: then the kernel keeps new connections waiting
while one process ends and the next begins, and a restart refuses nobody.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import uvicorn

from runtime_proxy import open_files

APPLICATION = "openface.data_asgi:application"
FIRST_FD_OF_SYSTEMD = 3
BACKLOG = 2048
OPTIONS: Mapping[str, Any] = {
    "http": "runtime_proxy.server:Protocol",
    "server_header": False,  # an app sends its own, or none
    "date_header": False,
    "proxy_headers": False,  # OPENFACE_TRUSTED_PROXIES decides, in `runtime_proxy.arrival`
    "access_log": False,  # addresses of apps hold their visitors' secrets
    "backlog": BACKLOG,
    "timeout_graceful_shutdown": 5,  # for streams: they would never end by themselves
    "log_level": "warning",
}


def config(application: Any = APPLICATION, **others: Any) -> uvicorn.Config:
    """How the application is served. `others` are further options of uvicorn's, or different ones."""
    return uvicorn.Config(application, **{**OPTIONS, **others})


def inherited(environ: Mapping[str, str] = os.environ) -> socket.socket | None:
    """The listening socket that systemd has handed on, or None."""
    if environ.get("LISTEN_PID") != str(os.getpid()) or not int(environ.get("LISTEN_FDS") or 0):
        return None
    return socket.socket(fileno=FIRST_FD_OF_SYSTEMD)


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve until a signal ends it."""
    parser = argparse.ArgumentParser(prog="python -m openface.data_server", description=__doc__.partition("\n")[0])
    parser.add_argument("--host", default="127.0.0.1", help="address to listen at (default: %(default)s)")
    parser.add_argument("--port", type=int, default=8091, help="port to listen at (default: %(default)s)")
    parser.add_argument("--fd", type=int, metavar="N", help="file descriptor of a listening socket, instead of the two")
    chosen = parser.parse_args(arguments)
    open_files.allow_most()
    listener = socket.socket(fileno=chosen.fd) if chosen.fd is not None else inherited()
    server = uvicorn.Server(config(host=chosen.host, port=chosen.port))
    server.run(sockets=None if listener is None else [listener])
    return 0 if server.started else 3


if __name__ == "__main__":
    sys.exit(main())
