"""Whose wish a request is: a session counts for the Space's own pages, the portal, programs and plain navigations."""

from __future__ import annotations

import pytest
from pytest_django import Settings

from runtime_proxy.origin import may_act

PORTAL = "http://of.example"
OWN = "http://alice-app-12345678.run.of.example"
SIBLING = "http://eve-page-12345678.run.of.example"


@pytest.fixture(autouse=True)
def _origins(settings: Settings) -> None:
    settings.PUBLIC_BASE_URL = PORTAL
    settings.OPENFACE_RUNTIME_ORIGIN = "http://{space}.run.of.example"


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({}, True),  # a program
        ({"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, True),  # typed
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "no-cors"}, True),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors", "Origin": OWN}, True),
        ({"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "navigate", "Origin": "null"}, True),  # with no-referrer
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, True),  # a link, or the portal's frame
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Origin": PORTAL}, True),
        ({"Origin": OWN}, True),
        ({"Origin": OWN.upper()}, True),
        ({"Origin": PORTAL}, True),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, False),  # <img>, <script>
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors", "Origin": SIBLING}, False),  # a POST
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors", "Origin": SIBLING}, False),
        ({"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate", "Origin": SIBLING}, False),  # a form
        ({"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Origin": "null"}, False),
        ({"Sec-Fetch-Site": "cross-site"}, False),
        ({"Origin": SIBLING}, False),  # where browsers send no Sec-Fetch
        ({"Origin": "null"}, False),
        ({"Origin": ""}, False),
        ({"Origin": OWN + ".evil.example"}, False),
        ({"Origin": OWN.replace("http:", "https:")}, False),
    ],
)
def test_a_session_counts_for(said: dict[str, str], expected: bool):
    headers = [(name.lower().encode(), value.encode()) for name, value in said.items()]

    assert may_act(headers, OWN) is expected
