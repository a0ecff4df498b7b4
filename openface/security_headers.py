"""Headers that keep the portal's pages to themselves: no foreign script, style or frame, and nobody frames them."""

from __future__ import annotations

from collections.abc import Callable

from django.conf import settings
from django.http import HttpRequest, HttpResponse

# The admin's own pages use inline styles in a few widgets.
ADMIN_STYLE = "style-src 'self' 'unsafe-inline'"


def content_security_policy(path: str) -> str:
    """The policy for a page of the portal or the admin."""
    style = ADMIN_STYLE if path.startswith("/admin/") else "style-src 'self'"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            style,
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            "form-action 'self'",
            # 'self' for the hand-over of the sign-in: browsers check each address of a redirect
            f"frame-src 'self' {settings.OPENFACE_RUNTIME_ORIGIN.replace('{space}', '*')}",
            "frame-ancestors 'none'",
            "base-uri 'none'",
        )
    )


class SecurityHeadersMiddleware:
    """Sets the policy where a view has not set a stricter one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        response = self.get_response(request)
        response.headers.setdefault("Content-Security-Policy", content_security_policy(request.path))
        return response
