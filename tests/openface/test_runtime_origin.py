"""The runtime origin fits the portal's address, and operators learn what it leaves open."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest
from django.contrib.auth.models import User
from django.core import checks as registry
from django.test import Client
from pytest_django import Settings

from openface import runtime_origin_checks as checks
from openface.sites import Kinship, kinship


@pytest.mark.parametrize(
    ("portal", "runtime", "expected"),
    [
        ("http://localhost:8090", "http://localhost:8091", Kinship.SAME_SITE),
        ("http://192.168.1.5:8090", "http://192.168.1.5:8091", Kinship.SAME_SITE),
        ("http://gpu:8090", "http://gpu:8091", Kinship.SAME_SITE),
        ("https://of.example", "https://run.of.example", Kinship.SAME_SITE),
        ("https://of.example.org", "https://run.example.org", Kinship.SAME_SITE),
        ("https://OF.example.org.", "https://run.example.org", Kinship.SAME_SITE),
        ("https://of.example.co.uk", "https://run.example.co.uk", Kinship.SAME_SITE),
        ("https://example.co.uk", "https://run.example.co.uk", Kinship.SAME_SITE),
        ("http://of.localhost:8090", "http://run.of.localhost:8091", Kinship.SAME_SITE),
        ("https://of.example", "https://{space}.run.of.example", Kinship.SAME_SITE),
        ("http://of.localhost:1", "http://{space}.run.of.localhost:2", Kinship.SAME_SITE),
        ("https://of.example", "http://run.of.example", Kinship.ANOTHER_SCHEME),
        ("http://of.example", "https://of.example", Kinship.ANOTHER_SCHEME),
        ("http://localhost:8090", "http://127.0.0.1:8091", Kinship.LOCALHOST_AND_NUMBERS),
        ("http://127.0.0.1:8090", "http://localhost:8091", Kinship.LOCALHOST_AND_NUMBERS),
        ("http://[::1]:8090", "http://127.0.0.1:8091", Kinship.LOCALHOST_AND_NUMBERS),
        ("https://of.example", "https://run.else", Kinship.FOREIGN),
        ("https://of.example", "https://run.example", Kinship.FOREIGN),  # they share what nobody can register
        ("http://localhost:8090", "http://run.localhost:8091", Kinship.FOREIGN),
        ("http://of.localhost", "http://run.localhost", Kinship.FOREIGN),
        ("http://gpu:8090", "http://run.gpu:8091", Kinship.FOREIGN),
        ("https://openface.co.uk", "https://spaces.co.uk", Kinship.FOREIGN),
        ("https://openface.ac.jp", "https://spaces.ac.jp", Kinship.FOREIGN),
        ("http://192.168.1.5", "http://192.168.2.5", Kinship.FOREIGN),
        ("http://192.168.1.5", "http://run.192.168.1.5", Kinship.FOREIGN),
        ("https://notof.example", "https://of.example", Kinship.FOREIGN),
    ],
)
def test_two_addresses_are_one_site_or_not(portal: str, runtime: str, expected: Kinship) -> None:
    assert kinship(urlsplit(portal), urlsplit(runtime)) == expected
    assert kinship(urlsplit(runtime), urlsplit(portal)) == expected


@pytest.mark.parametrize(
    ("portal", "runtime", "expected"),
    [
        ("http://localhost:8090", "http://localhost:8091", []),
        ("https://of.example", "https://{space}.run.of.example", []),
        ("https://of.example", "http://run.of.example", ["openface.E023"]),
        ("http://localhost:8090", "http://127.0.0.1:8091", ["openface.E024"]),
        ("https://of.example", "https://run.else.example", ["openface.E025"]),
        ("http://localhost:8090", "http://run.localhost:8091", ["openface.E025"]),
        ("https://of.example", "https://run-{space}.of.example", ["openface.E026"]),
        ("https://of.example", "https://run.{space}.of.example", ["openface.E026"]),
        ("https://of.example", "https://{space}.{space}.of.example", ["openface.E026"]),
        ("https://of.example", "https://{name}.of.example", ["openface.E026"]),
        ("https://of.example", "https://run.of.example/{space}", ["openface.E026"]),
        ("of.example", "https://run.of.example", []),  # E020 says so
    ],
)
def test_what_does_not_fit_is_said(settings: Settings, portal: str, runtime: str, expected: list[str]) -> None:
    settings.PUBLIC_BASE_URL, settings.OPENFACE_RUNTIME_ORIGIN = portal, runtime

    found = checks.kin(None)

    assert [problem.id for problem in found] == expected
    assert all(problem.hint and problem.msg.endswith(".") for problem in found)


MODES = [
    ("http://localhost:8090", "http://localhost:8091", ["W028", "W029", "W029", "W029"]),
    ("https://of.example", "https://of.example:8091", ["W028", "W029", "W029"]),
    ("https://of.example", "https://run.of.example", ["W028", "W029"]),
    ("https://of.example", "https://{space}.run.of.example", ["I028"]),
]


@pytest.mark.parametrize(("portal", "runtime", "expected"), MODES)
def test_a_deployment_is_told_what_its_mode_leaves_open(
    settings: Settings, portal: str, runtime: str, expected: list[str]
) -> None:
    settings.PUBLIC_BASE_URL, settings.OPENFACE_RUNTIME_ORIGIN = portal, runtime

    found = checks.left_open(None)

    assert [str(problem.id).removeprefix("openface.") for problem in found] == expected
    asked = registry.run_checks(tags=["security"], include_deployment_checks=True)
    assert {problem.id for problem in found} <= {problem.id for problem in asked}
    assert not {problem.id for problem in found} & {problem.id for problem in registry.run_checks(tags=["security"])}


@pytest.mark.parametrize(("portal", "runtime", "expected"), MODES)
def test_operators_read_it_in_their_language(
    db: None, settings: Settings, portal: str, runtime: str, expected: list[str]
) -> None:
    settings.PUBLIC_BASE_URL, settings.OPENFACE_RUNTIME_ORIGIN = portal, runtime
    operator = Client()
    operator.force_login(User.objects.create_superuser("operator"))

    page = operator.get("/admin/").content.decode()
    japanese = operator.get("/admin/", headers={"accept-language": "ja"}).content.decode()

    english = page[page.index("Runtime origin") :]
    assert runtime in english and runtime in japanese
    assert ("Cookies ignore ports" in english) is (len(expected) >= 3)
    assert ("Spaces share one origin" in english) is (expected[0] == "W028")
    assert ("There is no TLS" in english) is runtime.startswith("http://")
    assert ("apart from the portal and from each other" in english) is (expected == ["I028"])
    assert "Space を提供するオリジン" in japanese
