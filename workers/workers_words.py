"""What a worker says in its own words, on pages of ours: marked as such, since they are English whatever the reader's
language is, and headed by what we know of it in the reader's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from django.utils.html import conditional_escape, format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext_lazy

if TYPE_CHECKING:
    from django.utils.functional import _StrPromise

# What the checks of a worker's doctor look at, by their codes. One of a newer worker is shown by its code alone.
CHECKS: Mapping[str, _StrPromise] = {
    "settings": gettext_lazy("The worker's settings"),
    "data_dir": gettext_lazy("The worker's data directory"),
    "disk": gettext_lazy("The disk for sources"),
    "git": gettext_lazy("The program git"),
    "git_lfs": gettext_lazy("The program git-lfs"),
    "engine": gettext_lazy("The container engine and its disk"),
    "buildkit": gettext_lazy("Building images"),
    "build_limits": gettext_lazy("Limits of builds"),
    "driver": gettext_lazy("The GPU driver"),
    "gpu": gettext_lazy("The GPUs"),
    "gpu_runtime": gettext_lazy("GPUs in containers"),
    "default_runtime": gettext_lazy("Who else may use the GPUs"),
    "cgroups": gettext_lazy("Whether apps keep their GPU"),
    "pid_namespace": gettext_lazy("Sight of the machine's processes"),
    "wsl2": gettext_lazy("Windows (WSL2)"),
    "device_test": gettext_lazy("A container with a GPU"),
    "executor": gettext_lazy("How Spaces are run"),
}


def in_own_words(text: object) -> SafeString:
    """What the worker says."""
    return format_html('<span lang="en">{}</span>', str(text))


def told(sentence: str, **facts: str) -> SafeString:
    """A translated sentence with %(name)s in it, some of which may be words of the worker's own."""
    return mark_safe(conditional_escape(sentence) % {name: conditional_escape(fact) for name, fact in facts.items()})


def finding(check: Mapping[str, Any]) -> SafeString:
    """What the doctor found: what it is about, its code, and what is wrong and what to do in its own words."""
    code = str(check["check"])
    parts = (str(check.get("detail") or "").rstrip("."), str(check.get("remedy") or "").rstrip("."))
    said = in_own_words(" ".join(f"{part}." for part in parts if part))
    about = CHECKS.get(code)
    return format_html("{} ({}): {}", about, code, said) if about is not None else format_html("{}: {}", code, said)
