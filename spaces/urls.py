"""Addresses of the portal. A Space is never at the root: a user of the forge may be called `fleet` or `static`."""

from __future__ import annotations

from django.contrib.auth.views import LoginView, LogoutView
from django.urls import path
from django.views.decorators.csrf import csrf_exempt
from django.views.i18n import set_language

from spaces import (
    api,
    file_views,
    log_views,
    placement_views,
    queue_views,
    results_views,
    settings_views,
    token_views,
    views,
)

urlpatterns = [
    path("", views.space_list, name="home"),
    path("login/", LoginView.as_view(redirect_authenticated_user=False), name="login"),
    path("logout/", LogoutView.as_view(), name="logout"),
    # Without a token: it sets a cookie of no consequence, and a token would need a session for every passer-by.
    path("language/", csrf_exempt(set_language), name="set_language"),
    path("api/v1/spaces/<str:owner>/<str:name>/status", api.status, name="api_space_status"),
    path("api/v1/spaces/<str:owner>/<str:name>/results", results_views.results_api, name="api_space_results"),
    path("queue/", queue_views.queue_page, name="queue"),
    path("tokens/", token_views.token_page, name="tokens"),
    path("tokens/<int:token_id>/revoke", token_views.revoke, name="token_revoke"),
    path("spaces/", views.space_list, name="space_list"),
    path("spaces/<str:owner>/<str:name>/", views.app, name="space"),
    path("spaces/<str:owner>/<str:name>/status.json", views.status, name="space_status"),
    path("spaces/<str:owner>/<str:name>/start", views.start, name="space_start"),
    path("spaces/<str:owner>/<str:name>/stop", views.stop, name="space_stop"),
    path("spaces/<str:owner>/<str:name>/restart", views.restart, name="space_restart"),
    path("spaces/<str:owner>/<str:name>/logs/", log_views.logs_tab, name="space_logs"),
    path("spaces/<str:owner>/<str:name>/logs/<uuid:lease_id>/<str:stream>.txt", log_views.download, name="space_log"),
    path("spaces/<str:owner>/<str:name>/placement/", placement_views.placement_tab, name="space_placement"),
    path("spaces/<str:owner>/<str:name>/settings/", settings_views.settings_tab, name="space_settings"),
    path(
        "spaces/<str:owner>/<str:name>/settings/escaped/forget",
        settings_views.forget_escaped,
        name="space_forget_escaped",
    ),
    path("spaces/<str:owner>/<str:name>/activity/", views.history, name="space_activity"),
    path("spaces/<str:owner>/<str:name>/results/", results_views.results_tab, name="space_results"),
    path("spaces/<str:owner>/<str:name>/files/", file_views.tree, name="space_files"),
    path("spaces/<str:owner>/<str:name>/files/<path:path>", file_views.tree, name="space_file"),
    path("spaces/<str:owner>/<str:name>/raw/<str:revision>/<path:path>", file_views.raw, name="space_raw"),
]
