"""Small pieces that templates of every room draw: glyphs, badges, and amounts as words."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from django import template
from django.utils import timezone
from django.utils.html import format_html

from spaces import durations, file_paths, log_lines, why_folded, words

if TYPE_CHECKING:
    from django.contrib.auth.models import AbstractBaseUser
    from django.utils.safestring import SafeString

    from jobs.models import Job

register = template.Library()

register.filter("duration", durations.duration)
register.filter("rough", durations.rough)
register.filter("clock", durations.clock)
register.filter("file_size", durations.file_size)
register.filter("visible", file_paths.visible)
register.filter("folded", why_folded.folded)


@register.simple_tag
def icon(name: str) -> SafeString:
    """Draw a symbol of the sprite; it says nothing to a screen reader, so a word must stand beside it."""
    return format_html('<svg class="i" aria-hidden="true"><use href="#{}"/></svg>', name)


@register.simple_tag
def badge(value: words.Badge) -> SafeString:
    """Draw the badge of a Space: glyph, kind of machine and state."""
    return format_html('<span class="badge s-{}">{}{}</span>', value.state, icon(value.state), value.text)


@register.simple_tag
def job_badge(job: Job) -> SafeString:
    """Draw a badge with the word for a job's state alone."""
    name = words.state_name(job.state, completes=words.completes(job))
    return format_html('<span class="badge s-{}">{}{}</span>', job.state, icon(job.state), name)


@register.simple_tag
def ticking(seconds: float) -> SafeString:
    """Draw a stopwatch that goes on in the browser, from the server's reading: no clock of the visitor is trusted."""
    return format_html('<span data-clock="{}">{}</span>', f"{max(0.0, seconds):.1f}", durations.clock(seconds))


@register.simple_tag
def log_item(line: log_lines.Line, still_open: bool = False) -> SafeString:
    """Draw a line of a log."""
    return log_lines.as_item(line, still_open=still_open)


@register.filter
def short(revision: str) -> str:
    """Return a commit id as people quote it."""
    return revision[:7]


@register.filter
def age(moment: datetime | None) -> float:
    """Return how many seconds ago a moment was; for display only, never for a decision."""
    return 0.0 if moment is None else (timezone.now() - moment).total_seconds()


@register.filter
def initials(user: AbstractBaseUser) -> str:
    """Return one or two letters that stand for a person."""
    names = user.get_full_name().split() if hasattr(user, "get_full_name") else []
    letters = "".join(name[0] for name in names[:2]) or user.get_username()[:2]
    return letters.upper()


@register.filter
def within(name: str) -> str:
    """A name as it stands inside a sentence."""
    return words.within_sentence(name)
