"""HTTP/1.1 towards the gateways as one wants it next to untrusted apps: no shared connections, no lenient parsing.

aiohttp has no settings for these, so three of its parts are replaced here, and tests hold what they must do.
"""

from __future__ import annotations

import sys

import aiohttp
from aiohttp import client_reqrep, http_parser, http_writer
from aiohttp.client_reqrep import ConnectionKey
from multidict import CIMultiDict

RUNTIME_HEADER = "X-OpenFace-Runtime"


class LeaseRequest(aiohttp.ClientRequest):
    """A request whose connection serves no other lease: whatever one app leaves on it can answer only that app."""

    @property
    def connection_key(self) -> ConnectionKey:
        """What must be equal for a connection to be used again. The token stands for the lease."""
        token = self.headers.get(RUNTIME_HEADER, "")
        return super().connection_key._replace(proxy_headers_hash=int.from_bytes(token.encode()))

    async def send(self, conn: aiohttp.connector.Connection) -> aiohttp.ClientResponse:
        """Send on a connection on which nothing has come unasked; a fresh one is taken otherwise."""
        if conn.protocol is not None and conn.protocol.should_close:
            raise aiohttp.ServerDisconnectedError("Something came on an idle connection.")
        return await super().send(conn)


class RawWriter(http_writer.StreamWriter):
    """Writes header values byte for byte: what is not UTF-8 travels in text as surrogates."""

    async def write_headers(self, status_line: str, headers: CIMultiDict[str]) -> None:
        """Prepare the head. It goes out with the first piece of the body."""
        await super().write_headers(status_line, headers)
        if not (status_line.isascii() and all(map(str.isascii, headers.values()))):
            lines = [status_line, *(f"{name}: {value}" for name, value in headers.items()), "", ""]
            if any("\r" in line or "\n" in line for line in lines):
                raise ValueError("A header holds a line break.")
            self._headers_buf = "\r\n".join(lines).encode("utf-8", "surrogateescape")


def as_text(raw: bytes) -> str:
    """Bytes as the text that RawWriter turns back into them."""
    return raw.decode("utf-8", "surrogateescape")


def insist() -> None:
    """Replace the parts. Lenient parsing takes a bare line feed for the end of a line, which the gateway does not."""
    for parser in ("aiohttp._http_parser", "aiohttp.http_parser"):  # the compiled one, if there is one, and its twin
        if parser in sys.modules:
            vars(sys.modules[parser])["DEBUG"] = True  # used for nothing else there
    http_parser.HttpResponseParserPy.lax = False
    vars(client_reqrep)["StreamWriter"] = RawWriter
