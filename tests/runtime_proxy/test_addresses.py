"""Which Space a raw path names."""

from __future__ import annotations

import pytest

from runtime_proxy.addresses import escaped_from, parse


@pytest.mark.parametrize(
    ("path", "owner", "name", "rest"),
    [
        (b"/run/o/r", "o", "r", b""),
        (b"/run/o/r/", "o", "r", b"/"),
        (b"/run/o/r//a/../b%2F", "o", "r", b"//a/../b%2F"),
        (b"/run/%6F/r.x-y_z/", "o", "r.x-y_z", b"/"),
        (b"/run/o/../x", None, None, None),
        (b"/run/o/%2e%2e/x", None, None, None),
        (b"/run/./r/", None, None, None),
        (b"/run/o%2Fr/", None, None, None),
        (b"/run/o%2Fx/r/", None, None, None),
        (b"/run//r/", None, None, None),
        (b"/run/o", None, None, None),
        (b"/run/o/%00/", None, None, None),
        (b"/run/o/\xff/", None, None, None),
        (b"/runs/o/r/", None, None, None),
        (b"/", None, None, None),
    ],
)
def test_a_path_names_a_space_or_nothing(path: bytes, owner: str | None, name: str | None, rest: bytes | None):
    address = parse(path)

    found = (address.owner, address.name, address.rest) if address else (None, None, None)
    assert found == (owner, name, rest)


@pytest.mark.parametrize(
    ("referer", "prefix"),
    [
        ("http://localhost:8091/run/o/r/page?x", b"/run/o/r"),
        ("http://localhost:8091/spaces/o/r/", None),
        ("http://localhost:8090/run/o/r/", None),
        ("http://evil/run/o/r/", None),
        ("http://[::1", None),
        ("", None),
    ],
)
def test_only_a_page_of_this_host_has_escaped(referer: str, prefix: bytes | None):
    assert escaped_from(referer, host="localhost:8091") == prefix
