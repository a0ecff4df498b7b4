"""Tells operators where Spaces are served, and what that leaves open."""

from __future__ import annotations

from typing import Any

from django import template
from django.conf import settings

from spaces import origin_words
from spaces.origin import mode

register = template.Library()


@register.inclusion_tag("admin/_runtime_origin.html")
def runtime_origin() -> dict[str, Any]:
    """Draw the mode and its consequences."""
    return {
        "origin": settings.OPENFACE_RUNTIME_ORIGIN,
        "mode": origin_words.mode_name(mode()),
        "left_open": origin_words.left_open(),
    }
