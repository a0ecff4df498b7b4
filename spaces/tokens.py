"""Personal tokens: what a program shows in place of a person who is signed in. They open Spaces to read, nothing else.

A token can be read once, when it is made. It is kept as its plain SHA-256: 256 random bits cannot be guessed.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from django.contrib.auth.models import User
from django.db import IntegrityError, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext as _

from jobs import audit, notices
from spaces.models import PersonalToken

PREFIX = "ofp_"  # told from other secrets at a glance, and by scanners of repositories
MOST_PER_PERSON = 50
LONGEST_DAYS = 366
USED_EVERY = timedelta(minutes=1)  # how exactly the last use is known
NOTICE = "token"  # of the database, when one is revoked: its `token` is the row's id

_BYTES = 32
_TOKEN = re.compile(rb"ofp_[A-Za-z0-9_-]{43}")


class TokenRefused(Exception):
    """A token cannot be made like that; the message says why, in the reader's language."""


@dataclass(frozen=True)
class Issued:
    """A token at the only moment it can be read."""

    token: str
    row: PersonalToken

    def __repr__(self) -> str:
        return f"Issued({self.row.pk})"


@dataclass(frozen=True)
class Bearer:
    """Whom a token stands for, and for how many seconds it does."""

    token_id: int
    user: User
    seconds: float


def issue(user: User, *, name: str, ends_on: date, request: HttpRequest | None = None) -> Issued:
    """Make a token that is good through the day `ends_on`, where this installation is. Raises TokenRefused."""
    name = " ".join(name.split())
    today = timezone.localdate()
    if not name or len(name) > 64 or not name.isprintable():
        raise TokenRefused(_("Give it a name of 64 characters at most, such as where it is used."))
    if ends_on < today:
        raise TokenRefused(_("That day is over already."))
    if ends_on > today + timedelta(days=LONGEST_DAYS):
        raise TokenRefused(_("A token can be good for %(days)d days at most.") % {"days": LONGEST_DAYS})
    token = PREFIX + secrets.token_urlsafe(_BYTES)
    mine = PersonalToken.objects.filter(user_id=user.pk)
    try:
        with transaction.atomic():
            if mine.count() >= MOST_PER_PERSON:
                raise TokenRefused(
                    _("You have %(most)d tokens: revoke one that is not used.") % {"most": MOST_PER_PERSON}
                )
            row = mine.create(
                user_id=user.pk, name=name, token_hash=_digest(token.encode()), expires_at=_end_of(ends_on)
            )
            audit.record("token_create", obj=row, actor=user, request=request, after={"expires": str(ends_on)})
    except IntegrityError:  # a page that is sent twice must not make two
        raise TokenRefused(_("You have a token of that name already.")) from None
    return Issued(token, row)


def revoke(row: PersonalToken, *, actor: User, request: HttpRequest | None = None) -> None:
    """End a token at once, in all processes. Twice is once."""
    with transaction.atomic():
        locked = PersonalToken.objects.select_for_update(no_key=True).filter(pk=row.pk).first()
        if locked is None:
            return
        used = {"last_used": None if locked.last_used_at is None else locked.last_used_at.isoformat()}
        audit.record("token_revoke", obj=locked, actor=actor, request=request, before=used)
        notices.publish(NOTICE, token=locked.pk)
        locked.delete()


def digest_of(token: bytes) -> str | None:
    """Return the form in which a token is looked up; None for what is none at all, which costs no query."""
    return _digest(token) if _TOKEN.fullmatch(token) else None


def look_up(digest: str) -> Bearer | None:
    """Return whom the token stands for, and note that it is used. None: unknown, revoked, over, or its person left.

    One query, and once a minute another.
    """
    row = (
        PersonalToken.objects.filter(token_hash=digest, expires_at__gt=Now(), user__is_active=True)
        .select_related("user")
        .annotate(left=F("expires_at") - Now())
        .first()
    )
    if row is None:
        return None
    unused = Q(last_used_at=None) | Q(last_used_at__lt=Now() - USED_EVERY)
    PersonalToken.objects.filter(unused, pk=row.pk).update(last_used_at=Now())
    return Bearer(row.pk, row.user, row.left.total_seconds())


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def _end_of(day: date) -> datetime:
    return timezone.make_aware(datetime.combine(day + timedelta(days=1), time.min))
