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

MOUNT = Mount(prefix=b"/run/o/r")
EDGE = Edge(host=b"localhost:8091", scheme=b"http", forwarded_for=b"192.0.2.7", portal=b"http://localhost:8090")
OWN_POLICY = (b"content-security-policy", b"frame-ancestors 'self' http://localhost:8090")
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


@pytest.mark.parametrize(
    ("location", "expected"),
    [
        (b"/lab", b"/run/o/r/lab"),
        (b"/", b"/run/o/r/"),
        (b"/run/o/r/x", b"/run/o/r/x"),
        (b"/run/o/r", b"/run/o/r"),
        (b"/run/o/r?x", b"/run/o/r?x"),
        (b"/run/o/r2/x", b"/run/o/r/run/o/r2/x"),
        (b"/a/../b?x=/c#d", b"/run/o/r/a/../b?x=/c#d"),
        (b"foo/", b"foo/"),
        (b"../foo", b"../foo"),
        (b"?q", b"?q"),
        (b"#f", b"#f"),
        (b"", b""),
        (b"http://127.0.0.1:7860/x", b"/run/o/r/x"),
        (b"http://localhost:7860", b"/run/o/r/"),
        (b"http://0.0.0.0:7860?x=1", b"/run/o/r/?x=1"),
        (b"http://localhost:8091/x?y", b"/run/o/r/x?y"),
        (b"HTTPS://LOCALHOST:8091/x", b"/run/o/r/x"),
        (b"http://localhost:8091/run/o/r/x", b"/run/o/r/x"),
        (b"//localhost:8091/x", b"/run/o/r/x"),
        (b"http://localhost:8090/spaces/", b"http://localhost:8090/spaces/"),
        (b"//evil/x", b"//evil/x"),
        (b"https://example.org/x", b"https://example.org/x"),
        (b"myapp://localhost:8091/x", b"myapp://localhost:8091/x"),
        (b"mailto:a@b", b"mailto:a@b"),
    ],
)
def test_a_location_gets_the_prefix_once(location: bytes, expected: bytes):
    assert relocate(location, mount=MOUNT, edge=EDGE) == expected
    assert answered((b"Location", location)) == [(b"location", expected)]
    assert answered((b"Content-Location", location)) == [(b"content-location", expected)]


@pytest.mark.parametrize(
    ("cookie", "expected"),
    [
        (b"a=1", b"a=1"),
        (b"a=1; Path=/", b"a=1; Path=/run/o/r/"),
        (b"a=1;path=/x/y;HttpOnly", b"a=1;path=/run/o/r/x/y;HttpOnly"),
        (b"a=1; Path=/run/o/r/", b"a=1; Path=/run/o/r/"),
        (b"a=1; Path=/run/o/r", b"a=1; Path=/run/o/r"),
        (b"a=1; Path=/run/o/r2", b"a=1; Path=/run/o/r/run/o/r2"),
        (b"a=1; Path=x", b"a=1; Path=x"),
        (b"a=1; Domain=example.org; Secure", b"a=1; Secure"),
        (b'a="x|y=%3D"; Max-Age=3; SameSite=None; Partitioned', b'a="x|y=%3D"; Max-Age=3; SameSite=None; Partitioned'),
        (b"a=1; Expires=Wed, 09 Jun 2027 10:18:14 GMT", b"a=1; Expires=Wed, 09 Jun 2027 10:18:14 GMT"),
        (b"openface_session=1; Path=/", None),
        (b"OPENFACE_session=1", None),
        (b"__Host-openface_session=1; Path=/; Secure", None),
        (b" =openface_run=1", None),
        (b"\xa0openface_run=1", None),
        (b"\x85__Host-Http-openface_run=1", None),
        (b"__http-openface_run=1", None),
        (b"my_openface_thing=1", b"my_openface_thing=1"),
    ],
)
def test_a_cookie_of_the_app_stays_below_its_prefix(cookie: bytes, expected: bytes | None):
    kept = [value for name, value in answered((b"Set-Cookie", cookie)) if name == b"set-cookie"]

    assert kept == ([] if expected is None else [expected])


@pytest.mark.parametrize(
    ("cookies", "expected"),
    [
        (b"a=1; b=2", b"a=1; b=2"),
        (b"a=1; openface_session=x; b=2", b"a=1; b=2"),
        (b"openface_session=x; a=1", b"a=1"),
        (b"__Host-openface_run=x;a=1", b"a=1"),
        (b"=openface_run=x; a=1", b"a=1"),
        (b"openface_session=x", None),
        (b"openface_run=x; openface_language=ja", None),
        (b'weird="a,b"; =x; y', b'weird="a,b"; =x; y'),
    ],
)
def test_platform_cookies_never_reach_an_app(cookies: bytes, expected: bytes | None):
    assert dict(asked((b"cookie", cookies))).get(b"cookie") == expected


def test_what_is_meant_for_one_hop_ends_there():
    raw = [
        (b"connection", b"keep-alive, X-Mine"),
        (b"keep-alive", b"timeout=5"),
        (b"proxy-authorization", b"Basic x"),
        (b"te", b"trailers"),
        (b"trailer", b"x"),
        (b"transfer-encoding", b"chunked"),
        (b"upgrade", b"h2c"),
        (b"x-mine", b"1"),
        (b"accept", b"*/*"),
    ]

    assert [name for name, _ in asked(*raw)][1:2] == [b"accept"]
    assert answered(*raw) == [(b"accept", b"*/*")]


def test_connection_cannot_disown_what_we_rely_on():
    raw = [(b"connection", b"cookie, authorization"), (b"cookie", b"a=1"), (b"authorization", b"Bearer app")]

    kept = dict(asked(*raw))

    assert (kept[b"cookie"], kept[b"authorization"]) == (b"a=1", b"Bearer app")


def test_nobody_else_speaks_for_us():
    spoofed = [
        (b"x-forwarded-for", b"6.6.6.6"),
        (b"x-forwarded-user", b"admin"),
        (b"x-forwarded-prefix", b"/evil"),
        (b"forwarded", b"for=6.6.6.6"),
        (b"x-real-ip", b"6.6.6.6"),
        (b"x-openface-runtime", b"guess"),
        (b"x-openface-authorization", b"Bearer token"),
    ]

    assert asked(*spoofed) == [
        (b"host", b"localhost:8091"),
        (b"x-forwarded-prefix", b"/run/o/r"),
        (b"x-forwarded-host", b"localhost:8091"),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-for", b"192.0.2.7"),
        (b"forwarded", b'for=192.0.2.7;host="localhost:8091";proto=http'),
    ]


def test_a_trusted_proxy_is_believed_and_named():
    raw = [(b"x-forwarded-for", b"198.51.100.1")]

    assert forwarded_for("10.0.0.1", raw) == b"198.51.100.1, 10.0.0.1"
    assert forwarded_for("10.0.0.1", ()) == b"10.0.0.1"


def test_an_app_that_insists_is_called_localhost():
    mount = Mount(prefix=b"/run/o/r", rewrite_host=True, app_port=8188)

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


@pytest.mark.parametrize(
    "name",
    [
        b"Clear-Site-Data",
        b"Strict-Transport-Security",
        b"Alt-Svc",
        b"NEL",
        b"Report-To",
        b"X-Accel-Redirect",
        b"X-Accel-Buffering",
        b"X-Sendfile",
        b"X-OpenFace-Anything",
        b"Use-As-Dictionary",
        b"Secure-Session-Registration",
        b"Sec-Session-Registration",
    ],
)
def test_an_app_commands_neither_our_origin_nor_a_proxy_in_front(name: bytes):
    assert answered((name, b"x")) == []


@pytest.mark.parametrize(
    ("allowed", "expected"),
    [
        (b"/run/o/r/", b"/run/o/r/"),
        (b"/run/o/r/x", b"/run/o/r/x"),
        (b"/run/o/r/a-b/c_1.js/", b"/run/o/r/a-b/c_1.js/"),
        (b"/", b"/run/o/r/"),
        (b"/run/o/r", b"/run/o/r/"),  # as a string it begins /run/o/r2/ too
        (b"/run/o/r?x", b"/run/o/r/"),
        (b"/run/o/other/", b"/run/o/r/"),
        (b"/run/o/r/../../../", b"/run/o/r/"),
        (b"/run/o/r/..", b"/run/o/r/"),
        (b"/run/o/r/./", b"/run/o/r/"),
        (b"/run/o/r/.%2e/", b"/run/o/r/"),
        (b"/run/o/r/%2e%2E/%2e%2e/", b"/run/o/r/"),
        (b"/run/o/r/..\\..\\..\\", b"/run/o/r/"),
        (b"/run/o/r/.\t./", b"/run/o/r/"),
        (b"/run/o/r//", b"/run/o/r/"),
        (b"http://localhost:8091/", b"/run/o/r/"),
        (b"//localhost:8091/", b"/run/o/r/"),
        (b"../../..", b"/run/o/r/"),
        (b"/run/o/r/, /", b"/run/o/r/"),
        (b"", b"/run/o/r/"),
    ],
)
def test_a_service_worker_stays_below_its_prefix(allowed: bytes, expected: bytes):
    assert answered((b"Service-Worker-Allowed", allowed)) == [(b"service-worker-allowed", expected)]


def test_several_wishes_of_a_service_worker_are_none():
    wishes = [(b"service-worker-allowed", b"/run/o/r/x"), (b"Service-Worker-Allowed", b"/")]

    assert answered(*wishes) == [(b"service-worker-allowed", b"/run/o/r/")]


PORTAL = b"http://localhost:8090"


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        (b"default-src 'self'", b"default-src 'self'"),
        (b"frame-ancestors 'self'", b"frame-ancestors 'self' " + PORTAL),
        (
            b"frame-ancestors 'self'; report-uri /api/security/csp-report",  # JupyterLab's
            b"frame-ancestors 'self' " + PORTAL + b"; report-uri /api/security/csp-report",
        ),
        (b"Frame-Ancestors 'NONE'", b"Frame-Ancestors " + PORTAL),
        (b"frame-ancestors", b"frame-ancestors " + PORTAL),
        (b"script-src 'self';frame-ancestors https://a b", b"script-src 'self';frame-ancestors https://a b " + PORTAL),
        (
            b"frame-ancestors 'none', default-src *; frame-ancestors *",
            b"frame-ancestors " + PORTAL + b", default-src *; frame-ancestors * " + PORTAL,
        ),
        (b"sandbox; frame-ancestors-x 'none'", b"sandbox; frame-ancestors-x 'none'"),
        (b"", b""),
        (b";;", b";;"),
    ],
)
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
    assert app_path(b"//a/../b", Mount(prefix=b"/run/o/r", keep_prefix=True)) == b"/run/o/r//a/../b"
