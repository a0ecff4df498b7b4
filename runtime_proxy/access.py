"""Who may come in: a visitor and a name become an admission, or nothing.

Nothing is said for "missing" and for "not yours" alike. Decided by the `spaces` room; remembered here for a minute.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AnonymousUser

from runtime_proxy.recent import Fresh
from spaces import tokens
from spaces.access import Permission, get_space, permission
from spaces.forge.errors import NotFound

TOKEN_FIELD = b"x-openface-authorization"  # Authorization is the app's own, and none of our business
ADMITTED_SECONDS = 60.0  # a right that was taken away is gone at the latest then; a notice makes it at once
REFUSED_SECONDS = 5.0  # a Space that is made or opened right now should not stay hidden


@dataclass(frozen=True, slots=True)
class Visitor:
    """Who asks: a user, by a session or by a personal token, or anybody; `refused`: by a token that is none."""

    user_id: int | None = None
    session_id: uuid.UUID | None = None
    token_id: int | None = None
    refused: bool = False
    place: str = ""  # the one Space, by its host's label, that the session is for; "": for all

    @property
    def is_anonymous(self) -> bool:
        return self.user_id is None


ANYBODY = Visitor()
REFUSED = Visitor(refused=True)  # never taken for anybody: a program must learn that its token has ended


@dataclass(frozen=True, slots=True)
class Admission:
    """A Space that the visitor may see, under its canonical name."""

    space_id: int
    owner: str
    name: str
    may_write: bool


Question = tuple[int | None, str, str]  # user id, owner and name in lower case


def question(visitor: Visitor, owner: str, name: str) -> Question:
    """The key under which an answer is remembered. Names are case-insensitive."""
    return (visitor.user_id, owner.lower(), name.lower())


def decide(asked: Question) -> Fresh[Admission | None]:
    """Ask the database. Raises forge errors other than NotFound."""
    user_id, owner, name = asked
    user = get_user_model().objects.filter(pk=user_id, is_active=True).first() if user_id is not None else None
    visitor = user or AnonymousUser()
    try:
        space = get_space(visitor, owner, name)
    except NotFound:
        return Fresh(None, REFUSED_SECONDS)
    admission = Admission(space.pk, space.owner, space.name, permission(visitor, space) >= Permission.WRITE)
    return Fresh(admission, ADMITTED_SECONDS)


def bearer(digest: str) -> Fresh[Visitor]:
    """Return whom the personal token of that hash stands for, or REFUSED. Asks the database."""
    known = tokens.look_up(digest)
    if known is None:
        return Fresh(REFUSED, REFUSED_SECONDS)
    visitor = Visitor(user_id=known.user.pk, token_id=known.token_id)
    return Fresh(visitor, min(ADMITTED_SECONDS, known.seconds))


def presented_token(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """Return the hash of the one token that is shown as `Bearer <token>`; None where that is not what is shown."""
    shown = [value for name, value in headers if name == TOKEN_FIELD]
    scheme, _, token = shown[0].strip().partition(b" ") if len(shown) == 1 else (b"", b"", b"")
    return tokens.digest_of(token.strip()) if scheme.lower() == b"bearer" else None
