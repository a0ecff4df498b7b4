"""Paths of the worker API and the operators' API of the fleet, below /api/v1/."""

from __future__ import annotations

from django.urls import path, re_path
from drf_spectacular.views import SpectacularAPIView

from workers.api import fleet_views, space_views, views

NAME = r"(?P<name>[A-Za-z0-9._-]{1,63})"
LEASE = r"(?P<lease_id>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})"

urlpatterns = [
    path("schema/", SpectacularAPIView.as_view(), name="api_schema"),
    path("workers/enroll", views.EnrollView.as_view(), name="worker_enroll"),
    path("workers/register", views.RegisterView.as_view(), name="worker_register"),
    path("workers/<uuid:worker_id>", views.WorkerDetailView.as_view(), name="worker_detail"),
    path("workers/<uuid:worker_id>/heartbeat", views.HeartbeatView.as_view(), name="worker_heartbeat"),
    path("workers/<uuid:worker_id>/jobs/claim", views.ClaimView.as_view(), name="worker_claim"),
    path("workers/<uuid:worker_id>/jobs/<uuid:job_id>/events", views.EventsView.as_view(), name="worker_events"),
    path("workers/<uuid:worker_id>/jobs/<uuid:job_id>/lease", views.LeaseView.as_view(), name="worker_lease"),
    path("fleet/workers", fleet_views.FleetView.as_view(), name="fleet_workers"),
    re_path(rf"^fleet/workers/{NAME}$", fleet_views.FleetWorkerView.as_view(), name="fleet_worker"),
    re_path(
        rf"^fleet/workers/{NAME}/(?P<act>drain|resume|disable|enable|revoke|forget)$",
        fleet_views.StandingView.as_view(),
        name="fleet_standing",
    ),
    re_path(rf"^fleet/workers/{NAME}/held/{LEASE}/remove$", fleet_views.HeldView.as_view(), name="fleet_held"),
    re_path(rf"^fleet/workers/{NAME}/not_released/{LEASE}/free$", fleet_views.FreeView.as_view(), name="fleet_free"),
    path("fleet/queue", space_views.QueueView.as_view(), name="fleet_queue"),
    path("fleet/spaces/<str:owner>/<str:repo>/placement", space_views.PlacementView.as_view(), name="fleet_placement"),
    re_path(r"^(?:workers|fleet)(?:/.*)?$", views.NothingHere.as_view()),
]
