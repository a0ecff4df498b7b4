"""Whether browsers take two addresses for the same site, as far as that can be told without their list. Pure.

A site is a scheme and a registrable domain: one label more than a public suffix. Browsers carry a list of those
suffixes (publicsuffix.org); we do not. Certain without it: the same host is the same site; an address of numbers has no
domain; a name of one label is a suffix itself, to which `localhost` and names of a home network belong; what two names
share has to be two labels at least. Two like `co.uk` are a suffix by convention, and taken for one.
"""

from __future__ import annotations

import ipaddress
import re
from enum import StrEnum
from urllib.parse import SplitResult

# Second labels under which the registries of countries give out names: example.co.uk, example.ac.jp, example.com.au.
_SECOND = re.compile(r"(?:ac|ad|co|com|ed|edu|go|gob|gov|gr|lg|ltd|me|mil|ne|net|nom|or|org|plc|sch)\.[a-z]{2}")


class Kinship(StrEnum):
    """What two addresses are to each other."""

    SAME_SITE = "same_site"
    ANOTHER_SCHEME = "another_scheme"
    LOCALHOST_AND_NUMBERS = "localhost_and_numbers"
    FOREIGN = "foreign"


def kinship(one: SplitResult, other: SplitResult) -> Kinship:
    """Compare two http(s) addresses. `{space}` may stand for a label."""
    first, second = _host(one), _host(other)
    if one.scheme != other.scheme:
        return Kinship.ANOTHER_SCHEME
    if first == second:
        return Kinship.SAME_SITE
    if _is_loopback(first) and _is_loopback(second):
        return Kinship.LOCALHOST_AND_NUMBERS
    if _is_number(first) or _is_number(second):
        return Kinship.FOREIGN
    shared = _shared_labels(first, second)
    # A portal may live at its registrable domain itself, so the shorter name being what they share is well.
    suffix_by_convention = len(shared) == 2 and _SECOND.fullmatch(".".join(shared))
    return Kinship.SAME_SITE if len(shared) >= 2 and not suffix_by_convention else Kinship.FOREIGN


def _host(address: SplitResult) -> str:
    return (address.hostname or "").rstrip(".")


def _shared_labels(first: str, second: str) -> list[str]:
    shared: list[str] = []
    for mine, yours in zip(reversed(first.split(".")), reversed(second.split(".")), strict=False):
        if mine != yours:
            break
        shared.insert(0, mine)
    return shared


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_loopback(host: str) -> bool:
    return host == "localhost" or (_is_number(host) and ipaddress.ip_address(host).is_loopback)
