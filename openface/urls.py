"""Which room answers which path on the control plane."""

from __future__ import annotations

from django.contrib import admin
from django.http import HttpRequest, JsonResponse
from django.urls import include, path
from django.utils.translation import gettext_lazy as _

from jobs.clock import database_now

admin.site.site_header = _("OpenFace operations")
admin.site.site_title = "OpenFace"
admin.site.index_title = _("Fleet, jobs and history")


handler500 = "openface.failures.server_error"


def healthz(request: HttpRequest) -> JsonResponse:
    """Whether this process answers and reaches its database."""
    return JsonResponse({"ok": True, "now": database_now().isoformat()})


urlpatterns = [
    path("healthz", healthz),
    path("admin/", admin.site.urls),
    path("api/v1/", include("workers.api.urls")),
    path("", include("runtime_proxy.urls")),
    path("", include("workers.urls")),
    path("", include("spaces.urls")),
]
