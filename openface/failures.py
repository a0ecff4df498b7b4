"""What a person sees when a page breaks: the database being away for a moment is no bug of ours, and says so."""

from __future__ import annotations

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from psycopg_pool import PoolTimeout

RETRY_AFTER_SECONDS = 5
AWAY = (OperationalError, InterfaceError, PoolTimeout)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an exception that no view caught: 503 with Retry-After where the database did not answer, else 500.

    The request is left alone, since it may be what failed: its session, its visitor, the page's bar ask the database.
    """
    if not isinstance(sys.exc_info()[1], AWAY):
        return HttpResponse(render_to_string("500.html"), status=500)
    page = render_to_string("503.html", {"reason": _("The database does not answer.")})
    return HttpResponse(page, status=503, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
