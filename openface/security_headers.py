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
    runtime = settings.OPENFACE_RUNTIME_ORIGIN.replace("{space}", "*")
    # Browsers check each address of a redirect: after a sign-in, and within the frame, it leads to the runtime origin.
    form_targets = f"'self' {runtime}" if path.startswith("/login/") else "'self'"
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self'",
            style,
            "img-src 'self' data:",
            "font-src 'self'",
            "connect-src 'self'",
            f"form-action {form_targets}",
            f"frame-src 'self' {runtime}",
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
