"""What goes in comes out: methods, raw paths, headers, bodies."""

from __future__ import annotations

import http.client
from collections.abc import Callable

from jobs.models import Job
from tests.runtime_proxy.data_plane import DataPlane
from tests.runtime_proxy.upstreams import Asked, Upstream

RunSpace = Callable[..., Job]

SPELLINGS = [
    "/",
    "//",
    "//a//b/",
    "///",
    "/.",
    "/..",
    "/./a/../b",
    "/a/.",
    "/a/..",
    "/a/b/./..//c",
    "/...",
    "/../../healthz",
    "/..%2f..%2fhealthz",
    "/%2e",
    "/%2e%2e/%2E%2E/x",
    "/a%2Fb/%2e%2e/c",
    "/..;/x",
    "/;",
    "/a;b=c/d,e!$'()*:@~",
    "/a;v=1/../b",
    "/\\x\\..\\y",
    "/a%5Cb",
    "/%",
    "/%zz",
    "/%2",
    "/%00",
    "/%0d%0aX:1",
    "/%25%32%66",
    "/%c3%28",
    "/%E3%81%82",
    "/a%20b+c",
    "/~user/_-.",
    '/[x]{y}|^`"<>',
    "/run/alice/app/x",
    "/" + "long/" * 1600,
    "/%E3%81%82?x=%20+&y=a%26b&&z",
    "/a?b=/run/alice/app/&c=..",
    "/a?",
    "/a??",
    "/a?b=1?c=2",
    "/a?=",
    "/a?&&=&",
    "/a?%00%0a",
    '/a?x=[1]|{2}\\^`"<>',
    "/a?b=http://elsewhere/../x",
    "/a#b",
    "/a?b#c?d",
]
METHODS = [
    *("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "PROPFIND", "PROPPATCH", "MKCOL", "COPY", "MOVE"),
    *("LOCK", "UNLOCK", "REPORT", "SEARCH", "MKCALENDAR", "PURGE", "M-SEARCH", "NOTIFY", "SUBSCRIBE"),
]


def test_a_request_reaches_the_app(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    answer = data_plane.get("/run/alice/app/page?q=1")

    assert (answer.status, answer.body) == (200, b"ok")
    asked = upstream.seen[0]
    assert asked.target == b"/page?q=1"
    assert asked.one(b"host") == data_plane.host.encode()
    assert asked.one(b"x-forwarded-prefix") == b"/run/alice/app"


def test_every_spelling_of_a_path_arrives_byte_for_byte(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    for rest in SPELLINGS:
        answer = data_plane.raw(f"GET /run/alice/app{rest} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
        assert answer.startswith(b"HTTP/1.1 200 "), rest

    assert [asked.target for asked in upstream.seen] == [rest.encode() for rest in SPELLINGS]


def test_a_target_may_name_scheme_and_host(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    data_plane.raw(b"GET http://h/run/alice/app//a%2F?x HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

    assert upstream.seen[0].target == b"//a%2F?x"


def test_methods_and_bodies_arrive(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    bodies = upstream.keep_bodies(b"done")

    for method in METHODS:
        answer = data_plane.get("/run/alice/app/x", method=method, body=b"payload", Content_Type="text/weird")
        assert (answer.status, answer.body) == (200, b"done")

    assert bodies == [b"payload"] * len(METHODS)
    assert [asked.line.split(b" ")[0].decode() for asked in upstream.seen] == METHODS
    assert {asked.one(b"content-type") for asked in upstream.seen} == {b"text/weird"}
    assert {asked.one(b"content-length") for asked in upstream.seen} == {b"7"}


def test_a_chunked_body_stays_without_a_length(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    bodies = upstream.keep_bodies()

    data_plane.raw(
        b"POST /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n"
    )

    assert bodies == [b"abcdefg"]
    assert upstream.seen[0].one(b"content-length") is None


def test_repeated_headers_stay_several_and_in_order(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    answered = [b"X-Two: 1", b"Set-Cookie: a=1", b"X-Two: 2", b'Set-Cookie: b="q|=%"; HttpOnly', b"X-Two: 1"]
    upstream.handler = lambda asked: asked.ok(b"ok", *answered)

    raw = data_plane.raw(
        b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\nX-Many: b\r\nX-Many: a\r\nX-Many: b\r\n\r\n"
    )

    assert upstream.seen[0].all(b"x-many") == [b"b", b"a", b"b"]
    lines = [line for line in raw.split(b"\r\n\r\n")[0].lower().split(b"\r\n") if line.startswith((b"x-two", b"set-"))]
    assert lines == [line.lower() for line in answered]


def test_nothing_is_added_that_the_browser_did_not_send(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    data_plane.raw(b"GET /run/alice/app/ HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")

    names = sorted(name.lower() for name, _ in upstream.seen[0].headers)
    assert names == sorted(
        [b"host", b"forwarded"] + [b"x-forwarded-" + name for name in (b"for", b"host", b"prefix", b"proto")]
    )


def test_the_status_is_the_apps_own(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()

    async def as_asked(asked: Asked) -> None:
        status = int(asked.target.rsplit(b"/", 1)[1])
        length = b"" if status in (204, 304) else b"Content-Length: 0\r\n"
        await asked.answer(b"HTTP/1.1 %d Whatever\r\n%s\r\n" % (status, length))

    upstream.handler = as_asked
    statuses = [*range(200, 1000)]
    connection = http.client.HTTPConnection("127.0.0.1", data_plane.port, timeout=10)
    got = []

    for status in statuses:
        connection.request("GET", f"/run/alice/app/{status}")
        with connection.getresponse() as answer:
            got.append(answer.status)
            assert answer.read() == b""

    assert got == statuses
    connection.close()


def test_an_unchanged_page_may_announce_its_length(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.answer(
        b"HTTP/1.1 304 Not Modified\r\nContent-Length: 1234\r\nETag: x\r\n\r\n"
    )

    answer = data_plane.get("/run/alice/app/")

    assert (answer.status, answer.one("etag"), answer.body) == (304, "x", b"")


def test_head_keeps_the_length(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.answer(b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n")

    answer = data_plane.get("/run/alice/app/", method="HEAD")

    assert (answer.status, answer.one("content-length"), answer.body) == (200, "1234", b"")


def test_a_compressed_body_is_not_touched(data_plane: DataPlane, run_space: RunSpace, upstream: Upstream):
    run_space()
    upstream.handler = lambda asked: asked.ok(b"\x1f\x8bnot really", b"Content-Encoding: gzip")

    answer = data_plane.get("/run/alice/app/", Accept_Encoding="gzip")

    assert (answer.one("content-encoding"), answer.body) == ("gzip", b"\x1f\x8bnot really")
    assert upstream.seen[0].one(b"accept-encoding") == b"gzip"
