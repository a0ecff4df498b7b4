"""What operators read of where Spaces are served: which mode is on, and what it leaves open."""

from __future__ import annotations

from django.conf import settings
from django.utils.translation import gettext as _

from spaces.origin import Mode, mode


def mode_name(which: Mode) -> str:
    """Say the mode in a sentence."""
    return {
        Mode.SECOND_PORT: _("Spaces are served on the portal's own host, by another port."),
        Mode.SECOND_HOST: _("Spaces are served on one host of their own."),
        Mode.HOST_PER_SPACE: _("Each Space is served on a host of its own."),
    }[which]


def left_open() -> list[str]:
    """Say what this installation's mode leaves open, a sentence each; nothing where it leaves nothing."""
    told = []
    if mode() == Mode.SECOND_PORT:
        told.append(_("Cookies ignore ports: a page of a Space may set cookies for the portal's host."))
    if mode() != Mode.HOST_PER_SPACE:
        told.append(_("Spaces share one origin: a page of one can use its neighbours as the person who looks at it."))
    if not settings.OPENFACE_RUNTIME_ORIGIN.startswith("https://"):
        told.append(
            _(
                "There is no TLS: a page of a Space may put cookies with our names beside ours, or crowd ours out. "
                "People are signed out then, or go on at the portal in the name of whoever wrote the page."
            )
        )
    return told
