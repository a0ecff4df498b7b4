"""What becomes of header fields on their way, as tables: asked of the rules themselves, and of the whole chain."""

from __future__ import annotations

PREFIX = b"/run/alice/app"
HOST = b"localhost:8091"  # as the browser called us
PORTAL = b"http://localhost:8090"

# Location and Content-Location: what the app says, and what the browser gets.
LOCATIONS: list[tuple[bytes, bytes]] = [
    (b"/lab", b"/run/alice/app/lab"),
    (b"/", b"/run/alice/app/"),
    (b"/run/alice/app/x", b"/run/alice/app/x"),
    (b"/run/alice/app", b"/run/alice/app"),
    (b"/run/alice/app?x", b"/run/alice/app?x"),
    (b"/run/alice/app2/x", b"/run/alice/app/run/alice/app2/x"),
    (b"/a/../b?x=/c#d", b"/run/alice/app/a/../b?x=/c#d"),
    (b"foo/", b"foo/"),
    (b"../foo", b"../foo"),
    (b"?q", b"?q"),
    (b"#f", b"#f"),
    (b"", b""),
    (b"http://127.0.0.1:7860/x", b"/run/alice/app/x"),
    (b"http://localhost:7860", b"/run/alice/app/"),
    (b"http://0.0.0.0:7860?x=1", b"/run/alice/app/?x=1"),
    (b"http://localhost:8091/x?y", b"/run/alice/app/x?y"),
    (b"HTTPS://LOCALHOST:8091/x", b"/run/alice/app/x"),
    (b"http://localhost:8091/run/alice/app/x", b"/run/alice/app/x"),
    (b"//localhost:8091/x", b"/run/alice/app/x"),
    (b"http://localhost:8090/spaces/", b"http://localhost:8090/spaces/"),
    (b"//evil/x", b"//evil/x"),
    (b"https://example.org/x", b"https://example.org/x"),
    (b"myapp://localhost:8091/x", b"myapp://localhost:8091/x"),
    (b"mailto:a@b", b"mailto:a@b"),
]

# Set-Cookie: what the app says, and what the browser gets; None: nothing.
SET_COOKIES: list[tuple[bytes, bytes | None]] = [
    (b"a=1", b"a=1"),
    (b"a=1; Path=/", b"a=1; Path=/run/alice/app/"),
    (b"a=1;path=/x/y;HttpOnly", b"a=1;path=/run/alice/app/x/y;HttpOnly"),
    (b"a=1; Path=/run/alice/app/", b"a=1; Path=/run/alice/app/"),
    (b"a=1; Path=/run/alice/app", b"a=1; Path=/run/alice/app"),
    (b"a=1; Path=/run/alice/app2", b"a=1; Path=/run/alice/app/run/alice/app2"),
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
]

# Cookie: what the browser says, and what the app gets; None: nothing.
SENT_COOKIES: list[tuple[bytes, bytes | None]] = [
    (b"a=1; b=2", b"a=1; b=2"),
    (b"a=1; openface_session=x; b=2", b"a=1; b=2"),
    (b"openface_session=x; a=1", b"a=1"),
    (b"__Host-openface_run=x;a=1", b"a=1"),
    (b"=openface_run=x; a=1", b"a=1"),
    (b"openface_session=x", None),
    (b"openface_run=x; openface_language=ja", None),
    (b'weird="a,b"; =x; y', b'weird="a,b"; =x; y'),
]

# Fields of an answer that end at the data plane.
COMMANDS: list[bytes] = [
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
]

# Service-Worker-Allowed: what the app says, and what the browser gets.
SCOPES: list[tuple[bytes, bytes]] = [
    (b"/run/alice/app/", b"/run/alice/app/"),
    (b"/run/alice/app/x", b"/run/alice/app/x"),
    (b"/run/alice/app/a-b/c_1.js/", b"/run/alice/app/a-b/c_1.js/"),
    (b"/", b"/run/alice/app/"),
    (b"/run/alice/app", b"/run/alice/app/"),  # as a string it begins /run/alice/app2/ too
    (b"/run/alice/app?x", b"/run/alice/app/"),
    (b"/run/alice/other/", b"/run/alice/app/"),
    (b"/run/alice/app/../../../", b"/run/alice/app/"),
    (b"/run/alice/app/..", b"/run/alice/app/"),
    (b"/run/alice/app/./", b"/run/alice/app/"),
    (b"/run/alice/app/.%2e/", b"/run/alice/app/"),
    (b"/run/alice/app/%2e%2E/%2e%2e/", b"/run/alice/app/"),
    (b"/run/alice/app/..\\..\\..\\", b"/run/alice/app/"),
    (b"/run/alice/app/.\t./", b"/run/alice/app/"),
    (b"/run/alice/app//", b"/run/alice/app/"),
    (b"http://localhost:8091/", b"/run/alice/app/"),
    (b"//localhost:8091/", b"/run/alice/app/"),
    (b"../../..", b"/run/alice/app/"),
    (b"/run/alice/app/, /", b"/run/alice/app/"),
    (b"", b"/run/alice/app/"),
]

# Content-Security-Policy: what the app says, and what the browser gets.
POLICIES: list[tuple[bytes, bytes]] = [
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
]

# Fields of one hop, with one that Connection names; and what is left of them.
ONE_HOP: list[tuple[bytes, bytes]] = [
    (b"connection", b"keep-alive, X-Mine"),
    (b"keep-alive", b"timeout=5"),
    (b"proxy-connection", b"keep-alive"),
    (b"proxy-authenticate", b"Basic"),
    (b"proxy-authorization", b"Basic x"),
    (b"te", b"trailers"),
    (b"trailer", b"x"),
    (b"transfer-encoding", b"chunked"),
    (b"upgrade", b"h2c"),
    (b"x-mine", b"1"),
    (b"accept", b"*/*"),
]
LEFT_OF_ONE_HOP: list[tuple[bytes, bytes]] = [(b"accept", b"*/*")]

# What a browser may say, and nobody believes.
SPOOFED: list[tuple[bytes, bytes]] = [
    (b"x-forwarded-for", b"6.6.6.6"),
    (b"x-forwarded-user", b"admin"),
    (b"x-forwarded-prefix", b"/evil"),
    (b"forwarded", b"for=6.6.6.6"),
    (b"x-real-ip", b"6.6.6.6"),
    (b"x-openface-runtime", b"guess"),
    (b"x-openface-anything", b"x"),
    # apps behind CGI or WSGI read these as the above
    (b"x_forwarded_for", b"6.6.6.6"),
    (b"x-forwarded_prefix", b"/elsewhere"),
    (b"x_forwarded-proto", b"https"),
    (b"x_openface_runtime", b"guess"),
    (b"x-real_ip", b"6.6.6.6"),
]


def told(caller: bytes, *, host: bytes = HOST) -> list[tuple[bytes, bytes]]:
    """What an app is told of who asks, and how."""
    return [
        (b"x-forwarded-prefix", PREFIX),
        (b"x-forwarded-host", host),
        (b"x-forwarded-proto", b"http"),
        (b"x-forwarded-for", caller),
        (b"forwarded", b'for=%s;host="%s";proto=http' % (caller, host)),
    ]
