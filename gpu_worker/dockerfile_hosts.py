"""Which machines a Dockerfile wants something from, and which of them no build may ask: the worker's own.

BuildKit fetches what ADD names, and images, in the network of the machine, where services listen that nobody else
reaches. This reads what the text says. It is no wall: a name may lead to any address, and so may an answer.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from urllib.parse import unquote

from gpu_worker.dockerfile_names import expanded, values_of
from gpu_worker.dockerfile_text import readings
from gpu_worker.errors import JobFailed
from gpu_worker.tree_names import shown

_ADD = re.compile(r"\s*(?:ONBUILD\s+)?ADD\s+(?P<words>.*)", re.IGNORECASE | re.DOTALL)
_ADDRESS = re.compile(r"://(?P<authority>[^/?#\s]*)")
_LIKE_SCP = re.compile(r"\[?[\w.-]+@(?P<host>[^:/\s]+):")  # git@host:owner/repo.git
_JSON_ESCAPE = re.compile(r"\\u([0-9a-fA-F]{4})")
_OWN_NAMES = frozenset(
    {
        *("localhost", "localhost.localdomain", "localhost6", "ip6-localhost", "ip6-loopback"),
        *("host.docker.internal", "gateway.docker.internal", "host.containers.internal"),
    }
)
MOST_WORDS = 1000  # with variables, after ADD: nobody writes so many


def judge_added(dockerfile: str, build_args: Mapping[str, str]) -> None:
    """Raise JobFailed (``address_refused``) where the words after ADD name a host that `judge_host` refuses."""
    text = dockerfile.removeprefix("\ufeff")
    unescaped = _JSON_ESCAPE.sub(lambda escape: chr(int(escape[1], 16)), text)  # ADD ["\u0068ttp://…", …]
    for host in sorted({host for one in {text, unescaped} for host in _added(one, build_args)}):
        judge_host(host)


def judge_host(host: str) -> None:
    """Raise JobFailed (``address_refused``) where *host* is a way to write this machine, or what only it reaches.

    A name is not looked up. An address of another machine of the LAN may be used: teams have their mirrors there.
    """
    name = _plain(host)
    if name in _OWN_NAMES or name.endswith(".localhost") or name == socket.gethostname().lower() or _is_near(name):
        raise JobFailed(
            "address_refused",
            f"The Dockerfile wants something from {shown(host)}, which is the worker's own machine or reached by it "
            "alone. Builds may fetch from other machines only.",
        )


def registry_of(image: str) -> str | None:
    """The host that an image's name says, without its port; None where it is the usual registry's."""
    first, slash, _ = image.removeprefix("docker-image://").partition("/")
    if not slash or not ({".", ":"} & set(first) or first.lower() == "localhost"):
        return None
    return _host(first)


def _added(dockerfile: str, build_args: Mapping[str, str]) -> set[str]:
    words: set[str] = set()
    for instructions in readings(dockerfile):
        here: set[str] = set()
        for instruction in instructions:
            if (added := _ADD.match(instruction)) is not None:
                here.update(re.split(r"[\s,]+", added["words"]))
        words |= here
        unsure = sorted(word for word in here if "$" in word)
        values = values_of(instructions, build_args) if unsure else {}
        for word in unsure[:MOST_WORDS]:
            with suppress(JobFailed):  # a pattern in a variable: of a version, most often, and seldom of a host
                words |= expanded(word, values)
    return {host for word in words for host in _hosts(word) if host and "$" not in host}


def _hosts(word: str) -> Iterator[str]:
    for found in _ADDRESS.finditer(word):
        yield _host(found["authority"].rpartition("@")[2])
    if (remote := _LIKE_SCP.match(word)) is not None:
        yield remote["host"]


def _host(authority: str) -> str:
    """Without the port."""
    if authority.startswith("["):
        return authority.partition("]")[0].removeprefix("[")
    return authority.partition(":")[0]


def _plain(host: str) -> str:
    """As a resolver takes it: other scripts have digits and dots too, and an escape may stand for them."""
    text = unicodedata.normalize("NFKC", unquote(host)).replace("\u3002", ".")
    return "".join(one for one in text if unicodedata.category(one) != "Cf").lower().rstrip(".").partition("%")[0]


def _is_near(name: str) -> bool:
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        try:
            address = ipaddress.IPv4Address(socket.inet_aton(name))  # 127.1, 0x7f000001
        except (OSError, UnicodeError, ValueError):
            return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback or address.is_link_local or address.is_unspecified:
        return True
    return not address.is_multicast and _is_own(address)


def _is_own(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether it is one of this machine's (of this container's, where the worker runs in one)."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        return False
    return True
