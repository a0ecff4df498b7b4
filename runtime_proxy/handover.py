"""Sign-in on the runtime origin: handed over from the portal, never shared with it.

1. The data plane leaves a nonce in the browser and sends it to the portal with the nonce's hash.
2. The portal, where the person is signed in and may see the Space, makes a one-time code bound to that hash.
3. The data plane swaps the code, from that browser only, for a session of its own: a signed cookie that is read without
   a query, names the row it came from, and dies with the portal session (looked at again each minute).

The portal's session cookie opens nothing here, and this one opens nothing there. Where each Space has a host of its
own, so has each a session of its own: the code names the place, and the cookie after it.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import uuid
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from urllib.parse import parse_qs

from django.conf import settings
from django.contrib.auth import BACKEND_SESSION_KEY, HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.auth.models import AbstractBaseUser
from django.core import signing
from django.db.models.functions import Now

from runtime_proxy.access import ANYBODY, Visitor
from runtime_proxy.models import RuntimeSession
from runtime_proxy.origin import one_per_space
from runtime_proxy.recent import Fresh

CODE_SECONDS = 60  # from the portal's redirect to the swap: one round trip of a browser
NONCE_BYTES = 24
NONCE_SECONDS = 600  # a person may have to type a password in between
SESSION_SECONDS = 24 * 3600  # then it is handed over again, unseen
RECHECK_SECONDS = 60.0
MAX_QUERY_FIELDS = 20
PATH = "/run-handover/"

_MOST_STEPS = 3  # of a path: /run/{owner}/{name}
_PLACE = "."  # between a code and its place; neither has one
_SALT = "openface.runtime-session"
_NONCE = re.compile(r"[A-Za-z0-9_-]{32}")
_HASH = re.compile(r"[0-9a-f]{64}")


def digest(text: str) -> str:
    """The SHA-256 in which codes and nonces are kept and compared, hex."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


def new_nonce() -> str:
    """Return a nonce for the browser that begins."""
    return secrets.token_urlsafe(NONCE_BYTES)


def nonce_for(raw_cookies: bytes) -> str:
    """Return the nonce that this browser has already, or a new one: two pages may begin at the same time."""
    present = cookie_value(raw_cookies, nonce_cookie_name())
    return present if _NONCE.fullmatch(present) else new_nonce()


def is_hash(text: str) -> bool:
    """Whether the text looks like `digest`'s result."""
    return bool(_HASH.fullmatch(text))


@dataclass(frozen=True, slots=True)
class Query:
    """What the browser brings along the way. Nothing in it is trusted."""

    to: str = ""  # path and query on the runtime origin
    browser: str = ""
    code: str = ""


def read_query(raw: bytes) -> Query | None:
    """Return the query's fields; missing and repeated ones are empty, and so is a target that is no plain path.

    None: there are more fields than anybody would send who follows our links.
    """
    try:
        fields = parse_qs(raw.decode("latin-1"), keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS)
    except ValueError:
        return None
    one = {name: values[0] for name, values in fields.items() if len(values) == 1}
    to = one.get("to", "")
    plain = to.startswith(("/run/", "/results/")) and to.isascii() and to.isprintable() and "\\" not in to
    return Query(to=to if plain else "", browser=one.get("browser", ""), code=one.get("code", ""))


def issue(user: AbstractBaseUser, *, parent_key: str, browser_hash: str, place: str = "") -> str:
    """Return a one-time code for this person, in the browser with that nonce, for the Space whose host has that label.

    Old rows are swept along the way.
    """
    # What is known of a code is its digest: nobody can put another place behind it.
    code = f"{secrets.token_urlsafe(32)}{_PLACE}{place}" if place else secrets.token_urlsafe(32)
    RuntimeSession.objects.filter(created_at__lt=Now() - timedelta(seconds=SESSION_SECONDS)).delete()
    RuntimeSession.objects.create(
        user_id=user.pk, parent_key=parent_key, code_hash=digest(code), browser_hash=browser_hash
    )
    return code


def exchange(code: str, *, nonce: str) -> str | None:
    """Swap the code for a session cookie's value, once. None: unknown, used, too old, or another browser's."""
    row = RuntimeSession.objects.filter(
        code_hash=digest(code), exchanged_at=None, created_at__gt=Now() - timedelta(seconds=CODE_SECONDS)
    ).first()
    if row is None or not hmac.compare_digest(row.browser_hash, digest(nonce)):
        return None
    if not RuntimeSession.objects.filter(pk=row.pk, exchanged_at=None).update(exchanged_at=Now()):
        return None  # the same code was swapped a moment earlier
    content = {"session": row.pk.hex, "user": row.user_id, "place": code.partition(_PLACE)[2]}
    return signing.dumps(content, salt=_SALT)


def read(cookie: str) -> Visitor:
    """Return who the cookie says the visitor is: its signature and age are checked, no query is made.

    A session for one Space is none where Spaces share a host, nor the reverse: the installation was set up anew.
    """
    try:
        content = signing.loads(cookie, salt=_SALT, max_age=SESSION_SECONDS)
        visitor = Visitor(int(content["user"]), uuid.UUID(content["session"]), place=str(content["place"]))
    except (signing.BadSignature, KeyError, TypeError, ValueError):
        return ANYBODY
    return visitor if bool(visitor.place) == one_per_space() else ANYBODY


def recheck(visitor: Visitor) -> Fresh[Visitor]:
    """Return the visitor while the session and its parent live, else ANYBODY. Costs three small queries."""
    assert visitor.session_id is not None, "anybody has no session"
    row = RuntimeSession.objects.filter(pk=visitor.session_id, user=visitor.user_id).exclude(exchanged_at=None).first()
    alive = row is not None and user_of_portal_session(row.parent_key) == visitor.user_id
    return Fresh(visitor if alive else ANYBODY, RECHECK_SECONDS)


def visitor_of_portal_session(key: str) -> Fresh[Visitor]:
    """Return who is signed in by that portal session. For the portal's own process only."""
    user_id = user_of_portal_session(key)
    return Fresh(ANYBODY if user_id is None else Visitor(user_id=user_id), RECHECK_SECONDS)


def user_of_portal_session(key: str) -> int | None:
    """Return the active user whose portal session that is, or None: ended, expired, or the password has changed."""
    store = import_module(settings.SESSION_ENGINE).SessionStore(session_key=key)
    content = store.load()
    try:
        user_id = get_user_model()._meta.pk.to_python(content[SESSION_KEY])
    except (KeyError, ValueError):
        return None
    if content.get(BACKEND_SESSION_KEY) not in settings.AUTHENTICATION_BACKENDS:
        return None
    user = get_user_model().objects.filter(pk=user_id, is_active=True).first()
    if user is None:
        return None
    known = str(content.get(HASH_SESSION_KEY, "")).encode()
    hashes = [user.get_session_auth_hash(), *user.get_session_auth_fallback_hash()]
    return int(user.pk) if any(hmac.compare_digest(known, expected.encode()) for expected in hashes) else None


def _secure() -> bool:
    return str(settings.OPENFACE_RUNTIME_ORIGIN).startswith("https://")


def session_cookie_name() -> str:
    """The data plane's session cookie. Over TLS its prefix pins it to this host and path, out of reach of scripts."""
    return "__Host-Http-openface_run" if _secure() else "openface_run"


def nonce_cookie_name() -> str:
    """The cookie that ties a code to the browser that began."""
    return "__Host-Http-openface_run_start" if _secure() else "openface_run_start"


def set_cookie(name: str, value: str, *, max_age: int | None = None) -> bytes:
    """Return a Set-Cookie line of ours: for this host, out of reach of scripts."""
    parts = [f"{name}={value}", "Path=/", "HttpOnly", "SameSite=Lax"]
    if max_age is not None:
        parts.append(f"Max-Age={max_age}")
    if _secure():
        parts.append("Secure")
    return "; ".join(parts).encode("ascii")


def cookie_value(raw_cookies: bytes, name: str) -> str:
    """Return the value of the last cookie of that name in a Cookie header, or "".

    Ours are for the path `/`, and browsers list longer paths first: one that a page has planted below its own prefix
    comes before.
    """
    values = cookie_values(raw_cookies, name)
    return values[-1] if values else ""


def cookie_values(raw_cookies: bytes, name: str) -> list[str]:
    """Return the values of all cookies of that name, in the order of the Cookie header; empty ones are none."""
    wanted = name.encode("ascii") + b"="
    pairs = (pair.strip() for pair in raw_cookies.split(b";"))
    values = [pair[len(wanted) :].strip(b'"').decode("latin-1") for pair in pairs if pair.startswith(wanted)]
    return [value for value in values if value]


def unplanting(raw_cookies: bytes, *, path: bytes, host: bytes) -> list[bytes]:
    """Return Set-Cookie lines that remove session cookies which a page has planted beside ours, where there are any.

    Only without TLS can there be: there, one for a longer path or for a parent domain has a place of its own in the
    browser, and sessions of two people make nobody. What a page may name is limited, so all of it is named.
    """
    name = session_cookie_name()
    if len(cookie_values(raw_cookies, name)) < 2:
        return []
    steps = path.partition(b"?")[0].decode("latin-1").split("/")[1 : 1 + _MOST_STEPS]
    paths = ["/" + "/".join(steps[: end + 1]) for end in range(len(steps))]
    labels = host.decode("latin-1").partition(":")[0].split(".")
    domains = [".".join(labels[start:]) for start in range(len(labels) - 1)]
    gone = f"{name}=; Max-Age=0; Path="
    lines = [f"{gone}{path}{slash}" for path in paths for slash in ("", "/")]
    lines += [f"{line}; Domain={domain}" for line in (f"{gone}/", *lines) for domain in domains]
    return [line.encode("latin-1") for line in lines]
