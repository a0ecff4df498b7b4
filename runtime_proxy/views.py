"""The portal's side of the runtime origin: the well-known address `/run/…` leads there, and a sign-in is handed over.

Neither serves a byte of a Space on the portal's own origin.
"""

from __future__ import annotations

from urllib.parse import quote, urlencode, urlsplit

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.contrib.auth.views import redirect_to_login
from django.core.exceptions import BadRequest
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_safe

from runtime_proxy import access, addresses, handover
from runtime_proxy.addresses import Address
from runtime_proxy.asked import Asked
from runtime_proxy.origin import runtime_origin
from spaces import tokens
from spaces.access import get_space
from spaces.forge.errors import NotFound, Unavailable
from spaces.models import Space
from spaces.origin import place_of


class Moved(HttpResponse):
    """A redirect to a raw target: Django's own would quote it once more."""

    def __init__(self, status: int, location: str) -> None:
        super().__init__(status=status)
        self.headers["Location"] = location
        self.headers["Referrer-Policy"] = "no-referrer"


@csrf_exempt  # it does nothing but redirect, whatever the method
@never_cache
def run(request: HttpRequest, **_path: str) -> HttpResponseBase:
    """Send `/run/{owner}/{name}/…` on to the Space's runtime origin, with method, body, path and query kept."""
    raw_path, query = _raw_target(request)
    address = addresses.parse(raw_path)
    if address is None:
        raise Http404
    asked = _asked(request)
    person = _person(request)
    if person is None:
        detail = _("The personal token is not valid, or not any more.")
        return JsonResponse({"code": "token_refused", "detail": detail}, status=401)
    try:
        space = get_space(person, address.owner, address.name)
    except NotFound:
        if person.is_authenticated:
            raise Http404 from None
        return _stranger(request, asked)
    except Unavailable as outage:
        return _forge_away(outage)
    return Moved(307, _target(space, address, query))


@never_cache
@require_safe
def hand_over(request: HttpRequest) -> HttpResponseBase:
    """Give the signed-in visitor's browser a one-time code for the runtime origin it came from."""
    query = handover.read_query(request.META.get("QUERY_STRING", "").encode("latin-1"))
    if query is None:
        raise BadRequest
    raw_path, _mark, raw_query = query.to.partition("?")
    address = addresses.parse_any(raw_path.encode("ascii"))
    if address is None or not handover.is_hash(query.browser):
        raise Http404
    user = request.user
    if not user.is_authenticated:
        if _asked(request).framed:  # the sign-in page shows in no frame: say so where the frame is
            return Moved(302, f"{_any_origin(address)}{handover.PATH}?{urlencode({'to': query.to})}")
        return redirect_to_login(request.get_full_path())
    try:
        space = get_space(user, address.owner, address.name)
    except NotFound:
        raise Http404 from None
    except Unavailable as outage:
        return _forge_away(outage)
    key = request.session.session_key
    assert key is not None, "who is signed in has a session"
    place = place_of(space.owner, space.name)
    code = handover.issue(user, parent_key=key, browser_hash=query.browser, place=place)
    target = urlsplit(_target(space, address, raw_query.encode("ascii")))
    wanted = urlencode({"code": code, "to": f"{target.path}?{target.query}" if target.query else target.path})
    return Moved(302, f"{runtime_origin(space)}{handover.PATH}?{wanted}")


def _target(space: Space, address: Address, query: bytes) -> str:
    prefix = addresses.prefix_of(space.owner, space.name, address.root)
    path = prefix + (address.rest or b"/") + (b"?" + query if query else b"")
    return runtime_origin(space) + path.decode("latin-1")


def _any_origin(address: Address) -> str:
    """The origin of an address whose Space may not exist: the name alone decides, and says nothing."""
    return runtime_origin(Space(owner=address.owner, name=address.name))


def _person(request: HttpRequest) -> AbstractBaseUser | AnonymousUser | None:
    """Who asks: by the personal token that is shown, else by the portal's session; None: that token is none."""
    shown = request.headers.get(access.TOKEN_FIELD.decode("ascii"))
    if shown is None:
        return request.user
    digest = access.presented_token([(access.TOKEN_FIELD, shown.encode("latin-1", "replace"))])
    bearer = tokens.look_up(digest) if digest else None
    return None if bearer is None else bearer.user


def _stranger(request: HttpRequest, asked: Asked) -> HttpResponseBase:
    if asked.navigation:
        return redirect_to_login(request.get_full_path())
    detail = _("What you asked for is not public, or is not there.")
    return JsonResponse({"code": "unauthenticated", "detail": detail}, status=401)


def _forge_away(outage: Unavailable) -> HttpResponseBase:
    response = JsonResponse({"code": outage.code, "detail": str(outage)}, status=503)
    response.headers["Retry-After"] = str(round(outage.retry_after))
    return response


def _asked(request: HttpRequest) -> Asked:
    headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in request.headers.items()]
    return Asked(request.method or "GET", headers)


def _raw_target(request: HttpRequest) -> tuple[bytes, bytes]:
    """The path and query as the browser spelt them: Django's `path` is decoded already."""
    scope = getattr(request, "scope", None)
    if scope is not None and scope.get("raw_path"):
        return bytes(scope["raw_path"]).partition(b"?")[0], bytes(scope.get("query_string", b""))
    path = quote(request.path, safe="/:@!$&'()*+,;=~").encode("ascii")
    return path, request.META.get("QUERY_STRING", "").encode("latin-1")
