"""The workers room's paths as `openface/urls.py` includes them."""

from django.urls import include, path

urlpatterns = [path("api/v1/", include("workers.api.urls"))]
