"""What the portal answers for the data plane: /run/… redirects, and the sign-in hand-over."""

from __future__ import annotations

from django.urls import URLPattern

urlpatterns: list[URLPattern] = []
