"""What one serving process knows for a minute at most: visitors, admissions, routes, escaped requests; its gateways.

One per event loop. Notices of the database make it forget at once; without them it forgets by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from django.conf import settings

from jobs import notices
from runtime_proxy import access, handover, routing
from runtime_proxy.access import ANYBODY, REFUSED, Admission, Visitor
from runtime_proxy.arrival import cookies_of
from runtime_proxy.database import in_database
from runtime_proxy.escapes import Escapes
from runtime_proxy.headers import PlatformCookies, RawHeaders
from runtime_proxy.limits import Limits
from runtime_proxy.recent import Fresh, Recent
from runtime_proxy.routing import Route
from runtime_proxy.upstream import UpstreamPool
from runtime_proxy.watch import Rounds
from spaces import tokens
from spaces.origin import labelled, place_of

LABEL_SECONDS = 60.0
# Of what anybody may send and we remember an answer to. Django's session keys have 32 characters, a label of a host 63.
LONGEST_SESSION_KEY, LONGEST_LABEL = 40, 63
MOST_SESSIONS = 8  # of one request, which are looked at: ours among those that a page may have planted


class Plane:
    """The shared parts of the HTTP and the WebSocket proxy. Make it inside the event loop that uses it."""

    def __init__(self) -> None:
        self.pool = UpstreamPool()
        self.rounds = Rounds()
        self.cookies = PlatformCookies.named(settings.OPENFACE_PLATFORM_COOKIE_PREFIXES)
        self._session_cookie = handover.session_cookie_name()
        self._session_cookie_bytes = self._session_cookie.encode("ascii")
        self._sessions: Recent[str, Visitor] = Recent(_visitor_of_cookie)
        self._portal_sessions: Recent[str, Visitor] = Recent(_visitor_of_portal_session)
        self._bearers: Recent[str, Visitor] = Recent(_bearer)
        self._admissions: Recent[access.Question, Admission | None] = Recent(_decide)
        self._routes: Recent[int, Route] = Recent(_find)
        self._labelled: Recent[str, tuple[str, str] | None] = Recent(_named)
        self.limits = Limits()
        self.escapes = Escapes()
        self._loop = asyncio.get_running_loop()
        self._unsubscribe: Callable[[], None] = notices.subscribe(self._heed_in_loop)

    async def close(self) -> None:
        self._unsubscribe()
        await self.escapes.tell()
        await self.pool.close()

    async def visitor(self, headers: RawHeaders) -> Visitor:
        """Who asks: by a personal token, where one is shown, else by the data plane's own session, else anybody."""
        cookies = b""
        for name, value in headers:
            if name == b"cookie":
                cookies = cookies + b"; " + value if cookies else value  # HTTP/2 front ends may send several
            elif name == access.TOKEN_FIELD:
                return await self._bearer_of(headers)
        return ANYBODY if self._session_cookie_bytes not in cookies else await self._signed_in(cookies)

    async def _signed_in(self, cookies: bytes) -> Visitor:
        """Who asks, by the data plane's own session.

        Where a page can plant cookies (without TLS), several may come. What is no session does not count; sessions of
        two people make nobody: which of them sits here cannot be told, and nobody acts as somebody else unknowingly.
        """
        found = ANYBODY
        for cookie in handover.cookie_values(cookies, self._session_cookie)[-MOST_SESSIONS:]:
            visitor = await self._sessions.get(cookie)
            if found.user_id not in (None, visitor.user_id) and not visitor.is_anonymous:
                return ANYBODY
            found = found if visitor.is_anonymous else visitor
        return found

    async def portal_visitor(self, headers: RawHeaders) -> Visitor:
        """Who asks, by a token or the portal's session: for WebSockets that are served on the portal's own origin."""
        if any(name == access.TOKEN_FIELD for name, _ in headers):
            return await self._bearer_of(headers)
        key = handover.cookie_value(cookies_of(headers), settings.SESSION_COOKIE_NAME)
        return await self._portal_sessions.get(key) if key and len(key) <= LONGEST_SESSION_KEY else ANYBODY

    async def _bearer_of(self, headers: RawHeaders) -> Visitor:
        digest = access.presented_token(headers)
        return await self._bearers.get(digest) if digest else REFUSED

    async def admit(self, visitor: Visitor, owner: str, name: str) -> Admission | None:
        """The Space under that name, if the visitor may see it. Raises database and forge errors."""
        if visitor.place and visitor.place != place_of(owner, name):
            visitor = ANYBODY
        return await self._admissions.get(access.question(visitor, owner, name))

    async def route(self, space_id: int) -> Route:
        """Where the Space's requests go now. Raises database errors."""
        return await self._routes.get(space_id)

    async def labelled(self, label: str) -> tuple[str, str] | None:
        """Owner and name of the Space whose own host begins with that label. Raises database errors."""
        return await self._labelled.get(label) if len(label) <= LONGEST_LABEL else None

    def _heed_in_loop(self, notice: notices.Notice) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.heed, notice)

    def heed(self, notice: notices.Notice) -> None:
        """Forget what a notice makes doubtful."""
        space, worker = notice.ids.get("space"), notice.ids.get("worker")
        match notice.kind:
            case "job":
                self._routes.forget(lambda space_id, _: str(space_id) == space)
            case "standing" | "gateway":
                self._routes.forget(lambda _, route: str(route.worker_id) == worker)
            case "access":
                self._routes.forget(lambda space_id, _: str(space_id) == space)
                self._admissions.forget(lambda _, known: known is None or str(known.space_id) == space)
            case tokens.NOTICE:
                token = notice.ids.get("token")
                self._bearers.forget(lambda _, known: str(known.token_id) == token)
            case notices.RESYNC:
                self._routes.forget()
                self._admissions.forget()
                self._sessions.forget()
                self._portal_sessions.forget()
                self._bearers.forget()


_planes: dict[asyncio.AbstractEventLoop, Plane] = {}


def plane() -> Plane:
    """Return this event loop's plane, made when it is first asked for."""
    loop = asyncio.get_running_loop()
    if loop not in _planes:
        _planes[loop] = Plane()
    return _planes[loop]


async def close_plane() -> None:
    """Close this event loop's plane, if there is one."""
    mine = _planes.pop(asyncio.get_running_loop(), None)
    if mine is not None:
        await mine.close()


async def _visitor_of_cookie(cookie: str) -> Fresh[Visitor]:
    visitor = handover.read(cookie)
    if visitor.is_anonymous:
        return Fresh(ANYBODY, 0)  # a bad signature costs no query, so there is nothing to save
    return await in_database(handover.recheck, visitor)


async def _visitor_of_portal_session(key: str) -> Fresh[Visitor]:
    return await in_database(handover.visitor_of_portal_session, key)


async def _bearer(digest: str) -> Fresh[Visitor]:
    return await in_database(access.bearer, digest)


async def _decide(asked: access.Question) -> Fresh[Admission | None]:
    return await in_database(access.decide, asked)


async def _named(label: str) -> Fresh[tuple[str, str] | None]:
    return Fresh(await in_database(labelled, label), LABEL_SECONDS)


async def _find(space_id: int) -> Fresh[Route]:
    return await in_database(routing.find, space_id)
