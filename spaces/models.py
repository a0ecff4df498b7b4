"""Tables of the spaces room: the catalogue of Spaces, the repositories of the local forge, people's tokens."""

from __future__ import annotations

from datetime import date, timedelta

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


class Visibility(models.TextChoices):
    PUBLIC = "public", _("Public")  # everybody may read
    INTERNAL = "internal", _("Internal")  # everybody who is signed in may read
    PRIVATE = "private", _("Private")  # owner and collaborators may read


class Space(models.Model):
    """A repository that can be run. The forge's facts are a copy, refreshed at each look; its id is identity."""

    class Placement(models.TextChoices):
        AUTOMATIC = "automatic", _("Automatic")
        CPU = "cpu", "CPU"
        GPU = "gpu", "GPU"
        WORKER = "worker", _("A named worker")

    repository_id = models.CharField(_("repository id"), max_length=64, unique=True)
    owner = models.CharField(_("owner"), max_length=255)
    name = models.CharField(_("name"), max_length=255)
    visibility = models.CharField(_("visibility"), max_length=16, choices=Visibility, default=Visibility.PRIVATE)
    topics = ArrayField(models.CharField(max_length=64), verbose_name=_("topics"), default=list, blank=True)

    # README front matter at head, for cards; never decides where a job runs.
    title = models.CharField(_("title"), max_length=255, blank=True)
    emoji = models.CharField(_("emoji"), max_length=16, blank=True)
    color_from = models.CharField(_("first colour"), max_length=16, blank=True)
    color_to = models.CharField(_("second colour"), max_length=16, blank=True)
    short_description = models.CharField(_("short description"), max_length=255, blank=True)
    sdk = models.CharField("SDK", max_length=32, blank=True)
    head_revision = models.CharField(_("newest commit"), max_length=64, blank=True)
    head_at = models.DateTimeField(_("time of the newest commit"), null=True, blank=True)
    synced_at = models.DateTimeField(_("last looked at"), null=True, blank=True)

    placement = models.CharField(_("placement"), max_length=16, choices=Placement, default=Placement.AUTOMATIC)
    placement_worker = models.ForeignKey(
        "workers.Worker",
        verbose_name=_("named worker"),
        null=True,
        blank=True,
        on_delete=models.PROTECT,
        related_name="+",
    )
    app_port = models.PositiveIntegerField(
        _("port of the app"), null=True, blank=True, help_text=_("overrides the front matter's app_port")
    )
    startup_timeout_seconds = models.PositiveIntegerField(_("startup timeout (s)"), null=True, blank=True)
    keep_prefix = models.BooleanField(
        _("keep the path's prefix"),
        null=True,
        blank=True,
        help_text=_("empty: as the front matter says, else stripped"),
    )
    rewrite_host = models.BooleanField(
        _("rewrite the host"), null=True, blank=True, help_text=_("send Host and Origin as localhost")
    )

    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        verbose_name, verbose_name_plural = _("Space"), _("Spaces")
        constraints = [
            models.UniqueConstraint(Lower("owner"), Lower("name"), name="one_space_per_name"),
            models.CheckConstraint(
                condition=Q(placement="worker", placement_worker__isnull=False)
                | (~Q(placement="worker") & Q(placement_worker__isnull=True)),
                name="named_worker_only_with_that_placement",
            ),
        ]
        ordering = ["owner", "name"]

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"

    @property
    def run_path(self) -> str:
        """The prefix under which the app is served, without the trailing slash."""
        return f"/run/{self.owner}/{self.name}"


class LocalRepository(models.Model):
    """A bare repository of the local forge. Names are case-insensitive, as on Forgejo."""

    owner = models.CharField(
        _("owner"), max_length=255, help_text=_("a user's name, or an organisation that is only a name")
    )
    name = models.CharField(_("name"), max_length=255)
    visibility = models.CharField(_("visibility"), max_length=16, choices=Visibility, default=Visibility.PRIVATE)
    topics = ArrayField(models.CharField(max_length=64), verbose_name=_("topics"), default=list, blank=True)
    default_branch = models.CharField(_("default branch"), max_length=255, default="main")
    created_at = models.DateTimeField(_("created at"), db_default=Now())

    class Meta:
        verbose_name, verbose_name_plural = _("local repository"), _("local repositories")
        constraints = [models.UniqueConstraint(Lower("owner"), Lower("name"), name="one_repository_per_name")]

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


class LocalCollaborator(models.Model):
    """What a user other than the owner may do with a local repository."""

    class Permission(models.TextChoices):
        READ = "read", _("Read")
        WRITE = "write", _("Write")
        ADMIN = "admin", _("Admin")

    repository = models.ForeignKey(
        LocalRepository, verbose_name=_("repository"), on_delete=models.CASCADE, related_name="collaborators"
    )
    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), on_delete=models.CASCADE, related_name="+"
    )
    permission = models.CharField(_("permission"), max_length=8, choices=Permission)

    class Meta:
        verbose_name, verbose_name_plural = _("collaborator"), _("collaborators")
        constraints = [models.UniqueConstraint(fields=["repository", "user"], name="one_permission_per_user")]

    def __str__(self) -> str:
        return f"{self.user}: {self.permission}"


class PersonalToken(models.Model):
    """What a person's programs show on `/run` in place of a session. A revoked one has no row any more."""

    user = models.ForeignKey(
        settings.AUTH_USER_MODEL, verbose_name=_("user"), on_delete=models.CASCADE, related_name="+"
    )
    name = models.CharField(_("name"), max_length=64)
    token_hash = models.CharField(_("hash"), max_length=64, unique=True, help_text="SHA-256, hex")
    created_at = models.DateTimeField(_("created at"), db_default=Now())
    expires_at = models.DateTimeField(_("good until"))
    last_used_at = models.DateTimeField(_("last used"), null=True, blank=True)

    class Meta:
        verbose_name, verbose_name_plural = _("personal token"), _("personal tokens")
        constraints = [models.UniqueConstraint("user", Lower("name"), name="one_token_per_name")]
        ordering = ["-created_at"]

    def __str__(self) -> str:
        return self.name

    @property
    def last_day(self) -> date:
        """The last day on which it is good, where this installation is."""
        return timezone.localdate(self.expires_at - timedelta(seconds=1))


class EscapedRequest(models.Model):
    """A path that an app's pages asked for outside the Space's prefix, and how often. A few per Space are kept."""

    space = models.ForeignKey(Space, verbose_name=_("Space"), on_delete=models.CASCADE, related_name="escaped")
    path = models.CharField(_("path"), max_length=200, help_text=_("without its query"))
    count = models.BigIntegerField(_("requests"))
    first_at = models.DateTimeField(_("first seen"), db_default=Now())
    last_at = models.DateTimeField(_("last seen"), db_default=Now())

    class Meta:
        verbose_name, verbose_name_plural = _("escaped request"), _("escaped requests")
        constraints = [models.UniqueConstraint(fields=["space", "path"], name="one_row_per_escaped_path")]
        ordering = ["-count", "path"]

    def __str__(self) -> str:
        return self.path
