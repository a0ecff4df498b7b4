"""The rules for headers, as tables."""

from __future__ import annotations

import pytest

from runtime_proxy.headers import (
    Edge,
    Mount,
    PlatformCookies,
    RawHeaders,
    app_path,
    forwarded_for,
    relocate,
    to_app,
    to_browser,
)
from tests.runtime_proxy.header_tables import (
    COMMANDS,
    HOST,
    LEFT_OF_ONE_HOP,
    LOCATIONS,
    ONE_HOP,
    POLICIES,
    PORTAL,
    PREFIX,
    SCOPES,
    SENT_COOKIES,
    SET_COOKIES,
    SPOOFED,
    told,
)

MOUNT = Mount(prefix=PREFIX)
EDGE = Edge(host=HOST, scheme=b"http", forwarded_for=b"192.0.2.7", portal=PORTAL)
OWN_POLICY = (b"content-security-policy", b"frame-ancestors 'self' " + PORTAL)
COOKIES = PlatformCookies.named(
    ("openface_", "__Host-openface_", "__Secure-openface_", "__Http-openface_", "__Host-Http-openface_")
)


def asked(*raw: tuple[bytes, bytes], mount: Mount = MOUNT, websocket: bool = False) -> RawHeaders:
    return to_app(raw, mount=mount, edge=EDGE, cookies=COOKIES, websocket=websocket)


def answered(*raw: tuple[bytes, bytes], status: int = 200) -> RawHeaders:
    """What reaches the browser, without the lines that are always added."""
    kept = to_browser(raw, mount=MOUNT, edge=EDGE, cookies=COOKIES, status=status)
    assert kept[-2:] == [OWN_POLICY, (b"x-accel-buffering", b"no")]
    return kept[:-2]


@pytest.mark.parametrize(("location", "expected"), LOCATIONS)
def test_a_location_gets_the_prefix_once(location: bytes, expected: bytes):
    assert relocate(location, mount=MOUNT, edge=EDGE) == expected
    assert answered((b"Location", location)) == [(b"location", expected)]
    assert answered((b"Content-Location", location)) == [(b"content-location", expected)]


@pytest.mark.parametrize(("cookie", "expected"), SET_COOKIES)
def test_a_cookie_of_the_app_stays_below_its_prefix(cookie: bytes, expected: bytes | None):
    kept = [value for name, value in answered((b"Set-Cookie", cookie)) if name == b"set-cookie"]

    assert kept == ([] if expected is None else [expected])


@pytest.mark.parametrize(("cookies", "expected"), SENT_COOKIES)
def test_platform_cookies_never_reach_an_app(cookies: bytes, expected: bytes | None):
    assert dict(asked((b"cookie", cookies))).get(b"cookie") == expected


def test_what_is_meant_for_one_hop_ends_there():
    assert asked(*ONE_HOP)[1:2] == LEFT_OF_ONE_HOP
    assert answered(*ONE_HOP) == LEFT_OF_ONE_HOP


def test_connection_cannot_disown_what_we_rely_on():
    raw = [(b"connection", b"cookie, authorization"), (b"cookie", b"a=1"), (b"authorization", b"Bearer app")]

    kept = dict(asked(*raw))

    assert (kept[b"cookie"], kept[b"authorization"]) == (b"a=1", b"Bearer app")


def test_nobody_else_speaks_for_us():
    token = (b"x-openface-authorization", b"Bearer token")

    assert asked(*SPOOFED, token) == [(b"host", HOST), *told(b"192.0.2.7")]


def test_a_trusted_proxy_is_believed_and_named():
    raw = [(b"x-forwarded-for", b"198.51.100.1")]

    assert forwarded_for("10.0.0.1", raw) == b"198.51.100.1, 10.0.0.1"
    assert forwarded_for("10.0.0.1", ()) == b"10.0.0.1"


def test_an_app_that_insists_is_called_localhost():
    mount = Mount(prefix=b"/run/alice/app", rewrite_host=True, app_port=8188)

    kept = dict(asked((b"host", b"gpu:8091"), (b"origin", b"http://gpu:8091"), mount=mount))

    assert (kept[b"host"], kept[b"origin"]) == (b"localhost:8188", b"http://localhost:8188")
    assert kept[b"x-forwarded-host"] == b"localhost:8091"


def test_the_origin_is_left_alone_otherwise():
    assert dict(asked((b"origin", b"http://gpu:8091")))[b"origin"] == b"http://gpu:8091"


def test_each_hop_shakes_hands_for_itself():
    raw = [(b"sec-websocket-key", b"k"), (b"sec-websocket-protocol", b"a, b"), (b"sec-fetch-mode", b"websocket")]

    names = [name for name, _ in asked(*raw, websocket=True)]

    assert names[1] == b"sec-fetch-mode"
    assert not any(name.startswith(b"sec-websocket") for name in names)


def test_a_cookie_for_a_whole_host_passes_where_the_host_is_the_apps_own():
    lines = [b"__Host-sid=1; Path=/; Secure", b"plain=1; Path=/"]
    mount = Mount(prefix=PREFIX, own_host=True)

    kept = to_browser([(b"set-cookie", line) for line in lines], mount=mount, edge=EDGE, cookies=COOKIES)

    assert [value for name, value in kept if name == b"set-cookie"] == [lines[0], b"plain=1; Path=" + PREFIX + b"/"]


@pytest.mark.parametrize("name", COMMANDS)
def test_an_app_commands_neither_our_origin_nor_a_proxy_in_front(name: bytes):
    assert answered((name, b"x")) == []


@pytest.mark.parametrize(("allowed", "expected"), SCOPES)
def test_a_service_worker_stays_below_its_prefix(allowed: bytes, expected: bytes):
    assert answered((b"Service-Worker-Allowed", allowed)) == [(b"service-worker-allowed", expected)]


def test_several_wishes_of_a_service_worker_are_none():
    wishes = [(b"service-worker-allowed", b"/run/alice/app/x"), (b"Service-Worker-Allowed", b"/")]

    assert answered(*wishes) == [(b"service-worker-allowed", b"/run/alice/app/")]


@pytest.mark.parametrize(("policy", "expected"), POLICIES)
def test_the_portal_may_show_an_app_whatever_its_policy_says(policy: bytes, expected: bytes):
    assert answered((b"Content-Security-Policy", policy)) == [(b"content-security-policy", expected)]


def test_each_line_of_a_policy_counts_for_itself():
    lines = [(b"content-security-policy", b"frame-ancestors 'none'"), (b"content-security-policy", b"img-src *")]

    assert answered(*lines) == [(b"content-security-policy", b"frame-ancestors " + PORTAL), lines[1]]


def test_a_frame_option_gives_way_to_the_policy():
    assert answered((b"X-Frame-Options", b"DENY"), (b"x-frame-options", b"SAMEORIGIN")) == []


def test_an_answer_that_updates_a_stored_one_does_not_replace_its_policy():
    def policies(*raw: tuple[bytes, bytes]) -> list[bytes]:
        kept = to_browser(raw, mount=MOUNT, edge=EDGE, cookies=COOKIES, status=304)
        return [value for name, value in kept if name == b"content-security-policy"]

    assert policies() == []
    assert policies((b"content-security-policy", b"img-src *")) == [b"img-src *", OWN_POLICY[1]]


def test_values_and_order_are_kept():
    raw = [(b"x-b", b" odd\xff "), (b"x-a", b"1"), (b"x-b", b"2"), (b"server", b"app"), (b"date", b"now")]

    assert answered(*raw) == raw


def test_the_prefix_is_stripped_unless_the_app_keeps_it():
    assert app_path(b"//a/../b", MOUNT) == b"//a/../b"
    assert app_path(b"//a/../b", Mount(prefix=b"/run/alice/app", keep_prefix=True)) == b"/run/alice/app//a/../b"
