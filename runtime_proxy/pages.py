"""What is said when there is nothing to proxy: a page for a person, JSON for a program, with the same sentence.

Nothing here waits, asks a database or runs a script. A page that will change says so by Refresh.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from django.conf import settings
from django.contrib.staticfiles import finders
from django.template.loader import render_to_string
from django.utils import timezone, translation
from django.utils.formats import date_format
from django.utils.translation import gettext as _

from jobs.states import JobState
from jobs.switch import SWITCHED_OFF
from runtime_proxy.asked import Asked
from runtime_proxy.headers import RawHeaders
from runtime_proxy.limits import Refusal
from runtime_proxy.origin import portal_origin
from runtime_proxy.routing import ON_DEMAND, Standing, Upstream
from runtime_proxy.upstream import GatewayAnswered, GatewayFailed, GatewaySilent
from spaces import words

STATIC = b"/run-static/"
LOOK_AGAIN_SECONDS = 3  # while a Space is on its way
LOOK_AGAIN_LATER_SECONDS = 15  # while a machine is away
RETRY_AFTER_REST_SECONDS = 60  # a Space at rest: somebody has to start it
SHOWN_REASONS = 5  # workers; the Space page shows them all

_FILES = {b"openface.css": ("openface.css", "text/css; charset=utf-8"), b"icon.svg": ("icon.svg", "image/svg+xml")}


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer of ours."""

    status: int
    headers: RawHeaders
    body: bytes = b""


@dataclass(frozen=True)
class Link:
    """A way on. It leaves the frame: it leads to the portal, which shows in none."""

    label: str
    href: str
    main: bool = False


@dataclass(frozen=True)
class Notice:
    """The content of a page, in the reader's language."""

    code: str
    headline: str
    sentence: str
    more: tuple[str, ...] = ()
    title: str = ""
    emoji: str = ""
    colors: tuple[str, str] = ("gray", "gray")
    state: str = ""
    badge: str = ""
    links: tuple[Link, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)


def standing(route: Standing, asked: Asked, *, may_write: bool = False) -> Answer:
    """Say why a Space cannot be reached right now: 503. Who may start or restart it is shown the way there."""
    with translation.override(asked.language):
        notice = _standing_notice(route, may_write=may_write)
        if route.state == JobState.UNAVAILABLE:
            again = LOOK_AGAIN_LATER_SECONDS
        elif route.is_coming:
            again = LOOK_AGAIN_SECONDS
        else:
            again = RETRY_AFTER_REST_SECONDS
        return _answer(503, notice, asked, retry_after=again, refresh=again if route.is_coming else None)


def gateway_failed(upstream: Upstream, asked: Asked, failure: GatewayFailed) -> Answer:
    """Say how far the request got: 502, or 504 where nobody answered."""
    with translation.override(asked.language):
        facts = {"worker": upstream.worker_name}
        match failure:
            case GatewaySilent():
                code, sentence = "gateway_timeout", _("The app runs on %(worker)s, but its gateway does not answer.")
            case GatewayAnswered(app_unreachable=True):
                code, sentence = "app_unreachable", _("The app on %(worker)s does not answer on its port.")
            case GatewayAnswered(app_broke_off=True):
                code = "app_broke_off"
                sentence = _("The app on %(worker)s closed the connection, or sent something that is not valid HTTP.")
            case GatewayAnswered():
                code, sentence = "gateway_closed", _("%(worker)s does not serve this app at the moment.")
            case _:
                code = "gateway_refused"
                sentence = _("The app runs on %(worker)s, but its gateway refuses the connection.")
        notice = Notice(
            code=code,
            headline=_("The way to the app is broken"),
            sentence=sentence % facts,
            more=(_("The machine itself was heard from a moment ago. This page looks again by itself."),),
            state=JobState.UNAVAILABLE,
            badge=words.state_name(JobState.UNAVAILABLE),
            links=(_space_link(upstream.mount.prefix.decode("ascii").removeprefix("/run/")),),
            facts=facts,
        )
        again = LOOK_AGAIN_LATER_SECONDS
        status = 504 if isinstance(failure, GatewaySilent) else 502
        return _answer(status, notice, asked, retry_after=again, refresh=again)


def not_found(asked: Asked) -> Answer:
    """Missing, or not yours: the same words."""
    with translation.override(asked.language):
        notice = Notice(
            code="not_found",
            headline=_("There is nothing here that you may see"),
            sentence=_(
                "The address may be misspelt, or it belongs to a private repository: both look the same from outside, "
                "on purpose."
            ),
            links=(Link(_("All Spaces you may open"), settings.PUBLIC_BASE_URL + "/spaces/", main=True),),
        )
        return _answer(404, notice, asked)


def bad_request(asked: Asked) -> Answer:
    """Nobody who follows our links asks this way."""
    with translation.override(asked.language):
        notice = Notice(
            code="bad_request",
            headline=_("This address cannot be read"),
            sentence=_("It carries more than this page takes. Go back and follow the link again."),
            links=(Link(_("All Spaces you may open"), settings.PUBLIC_BASE_URL + "/spaces/", main=True),),
        )
        return _answer(400, notice, asked)


def sign_in(asked: Asked, *, next_path: str = "/") -> Answer:
    """Nobody is signed in, and what was asked for is not public, or not there: 401."""
    with translation.override(asked.language):
        href = f"{settings.PUBLIC_BASE_URL}/login/?next={quote(next_path)}"
        notice = Notice(
            code="unauthenticated",
            headline=_("Sign in first"),
            sentence=_("What you asked for is not public, or is not there."),
            links=(Link(_("Sign in"), href, main=True),),
        )
        return _answer(401, notice, asked)


def token_refused(asked: Asked) -> Answer:
    """A personal token that is none, or none any more: 401 for programs, whatever it was shown for."""
    with translation.override(asked.language):
        sentence = _("The personal token is not valid, or not any more.")
        return _answer(401, Notice(code="token_refused", headline="", sentence=sentence), asked, as_json=True)


def hand_over_failed(asked: Asked, *, next_path: str) -> Answer:
    """The code did not fit this browser, was used or is too old: 400, with a way to begin again."""
    with translation.override(asked.language):
        notice = Notice(
            code="handover_failed",
            headline=_("The sign-in did not reach this page"),
            sentence=_("It took too long, was used already, or this browser keeps no cookies for this address."),
            links=(Link(_("Try again"), next_path, main=True),),
        )
        return _answer(400, notice, asked)


def overloaded(asked: Asked) -> Answer:
    """The database or the forge does not answer: 503."""
    with translation.override(asked.language):
        notice = Notice(
            code="unavailable",
            headline=_("OpenFace itself does not answer at the moment"),
            sentence=_("Its database or its forge is starting or busy. Apps that run go on running."),
        )
        return _answer(503, notice, asked, retry_after=LOOK_AGAIN_SECONDS, refresh=LOOK_AGAIN_SECONDS)


def too_many(limit: Refusal, asked: Asked) -> Answer:
    """As much is under way as may be: 429 by one visitor, 503 to one Space."""
    with translation.override(asked.language):
        if limit == "visitor":
            sentence = _("From you, or from your network's address, %(count)s requests are open to apps here.")
            status, code, count = 429, "too_many_requests", settings.OPENFACE_RUN_MAX_PER_VISITOR
            headline = _("Too much at once")
        else:
            sentence = _("%(count)s requests to this app are open, and no more are taken at once.")
            status, code, count = 503, "space_busy", settings.OPENFACE_RUN_MAX_PER_SPACE
            headline = _("This app is busy")
        notice = Notice(
            code=code,
            headline=headline,
            sentence=sentence % {"count": count},
            more=(_("Close pages that you do not need, or try again in a moment."),),
            facts={"limit": count},
        )
        return _answer(status, notice, asked, retry_after=LOOK_AGAIN_SECONDS, refresh=LOOK_AGAIN_LATER_SECONDS)


def redirect(
    status: int, location: bytes, *, cookies: tuple[bytes, ...] = (), referrer: bytes = b"no-referrer"
) -> Answer:
    """Send the browser elsewhere. The target may hold a code: nobody caches it or, by default, passes on a Referer."""
    headers: RawHeaders = [
        (b"location", location),
        (b"content-length", b"0"),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", referrer),
        *((b"set-cookie", line) for line in cookies),
    ]
    return Answer(status, headers)


def alive() -> Answer:
    """Say that this process serves."""
    body = b"ok\n"
    return Answer(200, [(b"content-type", b"text/plain"), (b"content-length", b"%d" % len(body))], body)


def static_file(name: bytes) -> Answer | None:
    """Return one of the few files that our pages need, or None."""
    if name not in _FILES:
        return None
    file_name, content_type = _FILES[name]
    content = _file(file_name)
    headers: RawHeaders = [
        (b"content-type", content_type.encode("ascii")),
        (b"content-length", b"%d" % len(content)),
        (b"cache-control", b"public, max-age=86400"),  # the address changes with the content
        (b"x-content-type-options", b"nosniff"),
    ]
    return Answer(200, headers, content)


@cache
def _file(name: str) -> bytes:
    path = finders.find(name)
    return Path(path).read_bytes() if isinstance(path, str) else b""


@cache
def _static_url(name: str) -> str:
    return f"{STATIC.decode('ascii')}{name}?v={hashlib.sha256(_file(name)).hexdigest()[:12]}"


def _answer(
    status: int,
    notice: Notice,
    asked: Asked,
    *,
    retry_after: int | None = None,
    refresh: int | None = None,
    as_json: bool = False,
) -> Answer:
    headers: RawHeaders = [(b"cache-control", b"no-store"), (b"x-content-type-options", b"nosniff")]
    if retry_after is not None:
        headers.append((b"retry-after", b"%d" % retry_after))
    if as_json or not asked.navigation:
        body = json.dumps({"code": notice.code, "detail": notice.sentence, **notice.facts}, ensure_ascii=False).encode()
        headers.append((b"content-type", b"application/json"))
    else:
        context = {
            "notice": notice,
            "status": status,
            "language": asked.language,
            "framed": asked.framed,
            "portal": settings.PUBLIC_BASE_URL,
            "stylesheet": _static_url("openface.css"),
            "icon": _static_url("icon.svg"),
        }
        body = render_to_string("runtime_proxy/notice.html", context).encode()
        headers += [
            (b"content-type", b"text/html; charset=utf-8"),
            (b"content-language", asked.language.encode("ascii")),
            (b"vary", b"Accept, Accept-Language, Cookie, Sec-Fetch-Mode"),
            (b"referrer-policy", b"no-referrer"),
            (b"content-security-policy", _policy().encode("ascii")),
        ]
        if refresh is not None:
            headers.append((b"refresh", b"%d" % refresh))
    headers.append((b"content-length", b"%d" % len(body)))
    return Answer(status, headers, body)


def _policy() -> str:
    return (
        "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; form-action 'none'; "
        f"frame-ancestors 'self' {portal_origin()}"
    )


def _standing_notice(route: Standing, *, may_write: bool) -> Notice:
    headline, sentence, more = _told(route)
    facts: dict[str, Any] = {"state": route.state, "space": f"{route.owner}/{route.name}"}
    if route.worker_name:
        facts["worker"] = route.worker_name
    if route.place is not None:
        facts["place"] = route.place
    if route.since is not None:
        facts["since"] = route.since.isoformat()
    if route.reason_code:
        facts["reason"] = route.reason_code
    return Notice(
        code=f"space_{route.state}",
        headline=headline,
        sentence=sentence,
        more=more,
        title=route.title,
        emoji=route.emoji,
        colors=route.colors,
        state=route.state,
        badge=f"{route.kind.upper()} · {words.state_name(route.state, completes=route.completes)}",
        links=(_space_link(f"{route.owner}/{route.name}", _next_act(route), may_act=may_write),),
        facts=facts,
    )


def _told(route: Standing) -> tuple[str, str, tuple[str, ...]]:
    """Headline, the one sentence, and what else is worth saying."""
    names = {"worker": route.worker_name}
    match route.state:
        case JobState.QUEUED:
            # The scheduler's own sentences name other Spaces and processes; a visitor may not know of them.
            known = [(name, words.standing(code)) for name, code in route.waits_for]
            waits = [f"{name}: {standing}" for name, standing in known if standing]
            return _place(route), words.waiting(route.reason_code), tuple(waits[:SHOWN_REASONS])
        case JobState.LEASED:
            return _("A worker has it"), _("%(worker)s reads the repository.") % names, ()
        case JobState.BUILDING:
            return _("Building"), _("%(worker)s builds the image. Then it starts.") % names, ()
        case JobState.STARTING:
            return _("Starting"), _("The app was started on %(worker)s; its port does not answer yet.") % names, ()
        case JobState.RUNNING:
            return _("This job has no page"), _("A batch job computes and ends. Its log is on the Space's page."), ()
        case JobState.STOPPING:
            return _("Stopping"), _("Somebody stopped this Space; %(worker)s is about to end it.") % names, ()
        case JobState.UNAVAILABLE:
            return _("Unavailable"), _unavailable(route), _usually(route)
        case JobState.FAILED:
            why = words.reason(route.reason_code, route.reason)
            return _("It failed"), why or _("It ended when it should not have."), ()
        case JobState.COMPLETED if route.completes:
            return _("Completed"), _("The batch job has ended. Its log is on the Space's page."), ()
        case _ if route.state == ON_DEMAND:
            return _("Not started yet"), _("This Space runs when somebody starts it."), ()
        case _:
            return _("Stopped"), _("This Space does not run at the moment."), ()


def _place(route: Standing) -> str:
    if route.place is None:
        return _("Queued")
    if route.place_is_capped:
        return _("More than %(place)d in line before it") % {"place": route.place - 1}
    if route.place == 1:
        return _("Next in line")
    return _("Number %(place)d in line") % {"place": route.place}


def _unavailable(route: Standing) -> str:
    names = {"worker": route.worker_name, "since": _moment(route)}
    if route.reason_code == "gateway_not_approved":
        return _("The app runs on %(worker)s, but an operator has to approve the address of its gateway first.") % names
    if route.reason_code == "lease_key_unknown":
        return _("The key that opens the way to this app is no longer configured. Restart the Space.")
    if route.reason_code == SWITCHED_OFF:
        return words.reason(route.reason_code, "")
    return _("Worker %(worker)s has not been heard from since %(since)s.") % names


def _usually(route: Standing) -> tuple[str, ...]:
    if route.reason_code == SWITCHED_OFF:
        return (_("The app comes back by itself when they are switched on again."),)
    told = [_("The app comes back by itself when its machine does.")]
    if route.expected_online:
        told.append(_("Usually on: %(hours)s") % {"hours": route.expected_online})
    return tuple(told)


def _moment(route: Standing) -> str:
    if route.since is None:
        return "?"
    local = timezone.localtime(route.since)
    return f"{date_format(local, 'DATETIME_FORMAT')} {local.tzname()}"


def _next_act(route: Standing) -> str:
    """What somebody who may write to the Space would do on its page; empty where nothing helps but waiting."""
    if not route.is_coming:
        return _("Start it on the Space's page")
    if route.state == JobState.UNAVAILABLE and route.reason_code not in (SWITCHED_OFF, "gateway_not_approved"):
        return _("Restart it on the Space's page")
    return ""


def _space_link(full_name: str, act: str = "", *, may_act: bool = False) -> Link:
    """The way to the portal. Its owner may be nobody here, where a public Space needs no session: no act is named."""
    href = f"{settings.PUBLIC_BASE_URL}/spaces/{full_name}/"
    return Link(act if act and may_act else _("Open the Space's page"), href, main=bool(act))
