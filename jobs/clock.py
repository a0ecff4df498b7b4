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
    """The database's time, and since when the control plane has been up without a break. One query."""
    row = Uptime.objects.filter(pk=1).values_list(Now(), "up_since").first()
    if row is None:  # no web process has stamped yet: the control plane is just starting
        now = database_now()
        return now, now
    return row[0], row[1]


def up_since() -> datetime:
    """The start of the unbroken stretch of stamps. Silence and lease expiry are counted from here at the earliest."""
    return now_and_up_since()[1]


def stamp_alive() -> None:
    """Say that a web process is up. Called every OPENFACE_ALIVE_SECONDS by each of them.

    The first stamp after a gap starts a new stretch: every worker then gets a full period to report, with no special
    rule for our own outages.
    """
    gap = timedelta(seconds=settings.OPENFACE_ALIVE_SECONDS * MISSED_STAMPS)
    up_since_or_now = Case(When(alive_at__lt=Now() - Value(gap), then=Now()), default=F("up_since"))
    if not Uptime.objects.filter(pk=1).update(up_since=up_since_or_now, alive_at=Now()):
        Uptime.objects.bulk_create([Uptime(pk=1)], ignore_conflicts=True)
