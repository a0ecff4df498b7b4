"""Pages of the fleet on the portal. The worker API's paths are in `workers/api/urls.py`."""

from __future__ import annotations

from django.urls import path

from workers import views

urlpatterns = [
    path("fleet/", views.fleet, name="fleet"),
]
