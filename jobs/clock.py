"""The one clock: the database's. A worker's clock is never compared with ours, nor two of our processes' clocks."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.conf import settings
from django.db import connection
from django.db.models import Case, F, Value, When
from django.db.models.functions import Now

from jobs.models import Uptime

# A stretch of stamps is broken when three in a row are missing.
MISSED_STAMPS = 3


def database_now() -> datetime:
    """The database's time of this statement (not of the transaction's start)."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT statement_timestamp()")
        row = cursor.fetchone()
    assert row is not None
    moment: datetime = row[0]
    return moment


def now_and_up_since() -> tuple[datetime, datetime]:
    """The database's time, and since when the control plane has been up without a break. One query.

    While no web process stamps, no worker can report: then "up since" is this moment, and nobody counts as silent.
    """
    row = Uptime.objects.filter(pk=1).values_list(Now(), "up_since", "alive_at").first()
    if row is None:  # the control plane starts for the first time
        now = database_now()
        return now, now
    now, up_since_, alive_at = row
    return now, unbroken_since(now, up_since=up_since_, alive_at=alive_at)


def unbroken_since(now: datetime, *, up_since: datetime | None, alive_at: datetime | None) -> datetime:
    """Return the start of the unbroken stretch of stamps by what its row says; None: there is no row yet."""
    if up_since is None or alive_at is None or now - alive_at > _unbroken_gap():
        return now
    return up_since


def up_since() -> datetime:
    """The start of the unbroken stretch of stamps. Silence and lease expiry are counted from here at the earliest."""
    return now_and_up_since()[1]


def stamp_alive() -> None:
    """Say that a web process is up. Called every OPENFACE_ALIVE_SECONDS by each of them.

    The first stamp after a gap starts a new stretch: every worker then gets a full period to report, with no special
    rule for our own outages.
    """
    up_since_or_now = Case(When(alive_at__lt=Now() - Value(_unbroken_gap()), then=Now()), default=F("up_since"))
    if not Uptime.objects.filter(pk=1).update(up_since=up_since_or_now, alive_at=Now()):
        Uptime.objects.bulk_create([Uptime(pk=1)], ignore_conflicts=True)


def _unbroken_gap() -> timedelta:
    """The longest pause between two stamps that still counts as one stretch."""
    return timedelta(seconds=settings.OPENFACE_ALIVE_SECONDS * MISSED_STAMPS)
