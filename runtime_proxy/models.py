"""The one table of this room: sign-ins on the runtime origin."""

from __future__ import annotations

import uuid

from django.conf import settings
from django.db import models
from django.db.models.functions import Now


class RuntimeSession(models.Model):
    """A sign-in on the runtime origin: first a one-time code, then the session that the code was swapped for.

    It has no rights of its own: it lives as long as the portal session it came from.
    """

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    parent_key = models.CharField(max_length=64, help_text="key of the portal session")
    code_hash = models.CharField(max_length=64, unique=True, help_text="SHA-256 of the code, hex")
    browser_hash = models.CharField(max_length=64, help_text="SHA-256 of the nonce in the browser that began")
    created_at = models.DateTimeField(db_default=Now())
    exchanged_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        indexes = [models.Index(fields=["created_at"], name="runtime_session_by_age")]

    def __str__(self) -> str:
        return f"runtime session {self.id}"
