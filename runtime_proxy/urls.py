"""The portal's addresses that lead to the runtime origin."""

from __future__ import annotations

from django.urls import path, re_path

from runtime_proxy import handover, views

urlpatterns = [
    re_path(r"^run/(?P<owner>[^/]+)/(?P<rest>[\s\S]+)\Z", views.run, name="run"),
    path(handover.PATH.strip("/") + "/", views.hand_over, name="run_hand_over"),
]
