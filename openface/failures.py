"""What a person sees when a page breaks: the database being away for a moment is no bug of ours, and says so."""

from __future__ import annotations

import sys

from django.db import InterfaceError, OperationalError
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.translation import gettext as _
from django.views.defaults import server_error as server_error_page
from psycopg_pool import PoolTimeout

RETRY_AFTER_SECONDS = 5
AWAY = (OperationalError, InterfaceError, PoolTimeout)


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer an exception that no view caught: 503 with Retry-After where the database did not answer, else 500."""
    if not isinstance(sys.exc_info()[1], AWAY):
        return server_error_page(request)
    # Rendered without the request: the page's bar would ask the database again.
    page = render_to_string("503.html", {"reason": _("The database does not answer.")})
    return HttpResponse(page, status=503, headers={"Retry-After": str(RETRY_AFTER_SECONDS)})
