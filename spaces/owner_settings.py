"""What people who may write to a Space set for it, beside its README: how the data plane speaks to its app.

A setting touches later starts only, and goes before the README's word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import AbstractBaseUser, AnonymousUser
from django.db import transaction
from django.http import HttpRequest

from jobs import audit
from jobs.models import Job
from spaces.models import Space

# What a form or a program says, and what the column holds; None leaves it to the README.
PREFIXES = {"": None, "keep": True, "strip": False}
REWRITES = {"": None, "yes": True, "no": False}


@dataclass(frozen=True)
class Settings:
    """How an app is spoken to: its prefix kept or stripped, Host and Origin rewritten or not. None: as the README."""

    keep_prefix: bool | None
    rewrite_host: bool | None

    @classmethod
    def of(cls, space: Space) -> Settings:
        return cls(space.keep_prefix, space.rewrite_host)

    @classmethod
    def read(cls, prefix: str, rewrite_host: str) -> Settings | None:
        """Return what two fields of a form say; None where one of them says nothing that we know."""
        if prefix not in PREFIXES or rewrite_host not in REWRITES:
            return None
        return cls(PREFIXES[prefix], REWRITES[rewrite_host])

    @property
    def prefix(self) -> str:
        return next(word for word, value in PREFIXES.items() if value is self.keep_prefix)

    @property
    def rewrite(self) -> str:
        return next(word for word, value in REWRITES.items() if value is self.rewrite_host)

    def as_json(self) -> dict[str, Any]:
        return {"keep_prefix": self.keep_prefix, "rewrite_host": self.rewrite_host}


def change(
    space_id: int, wanted: Settings, *, actor: AbstractBaseUser | AnonymousUser, request: HttpRequest | None = None
) -> bool:
    """Write the settings, and who changed what; return whether anything changed. The caller asked for permission."""
    with transaction.atomic():
        space = Space.objects.select_for_update(no_key=True).get(pk=space_id)
        before = Settings.of(space)
        if before == wanted:
            return False
        Space.objects.filter(pk=space_id).update(keep_prefix=wanted.keep_prefix, rewrite_host=wanted.rewrite_host)
        old, new = before.as_json(), wanted.as_json()
        changed = [key for key in new if old[key] != new[key]]
        audit.record(
            "space_settings",
            obj=space,
            actor=actor,
            request=request,
            before={key: old[key] for key in changed},
            after={key: new[key] for key in changed},
        )
    return True


@dataclass(frozen=True)
class InForce:
    """How the app of a run is spoken to. `found`: what it was found to want when it began to answer; "" not known."""

    prefix: str  # keep, strip or detect: as of its start
    found: str
    rewrite_host: bool

    @classmethod
    def of(cls, job: Job) -> InForce:
        """Read a run's spec. A run of an earlier version has its prefix stripped and nothing found."""
        found = str(job.spec.get("found_prefix") or "")
        return cls(str(job.spec.get("prefix") or "strip"), found, job.spec.get("rewrite_host") is True)

    @property
    def keeps(self) -> bool:
        """Whether the app sees its prefix. An explicit word goes before what was found."""
        return self.prefix == "keep" or (self.prefix == "detect" and self.found == "keep")
