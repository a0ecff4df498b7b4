"""Tables of the spaces room: the catalogue of Spaces, and the repositories of the local forge."""

from __future__ import annotations

from django.conf import settings
from django.contrib.postgres.fields import ArrayField
from django.db import models
from django.db.models import Q
from django.db.models.functions import Lower, Now


class Visibility(models.TextChoices):
    PUBLIC = "public", "Public"  # everybody may read
    INTERNAL = "internal", "Internal"  # everybody who is signed in may read
    PRIVATE = "private", "Private"  # owner and collaborators may read


class Space(models.Model):
    """A repository that can be run. The forge's facts are a copy, refreshed at each look; its id is identity."""

    class Placement(models.TextChoices):
        AUTOMATIC = "automatic", "Automatic"
        CPU = "cpu", "CPU"
        GPU = "gpu", "GPU"
        WORKER = "worker", "A named worker"

    repository_id = models.CharField(max_length=64, unique=True)
    owner = models.CharField(max_length=255)
    name = models.CharField(max_length=255)
    visibility = models.CharField(max_length=16, choices=Visibility, default=Visibility.PRIVATE)
    topics = ArrayField(models.CharField(max_length=64), default=list, blank=True)

    # README front matter at head, for cards; never decides where a job runs.
    title = models.CharField(max_length=255, blank=True)
    emoji = models.CharField(max_length=16, blank=True)
    color_from = models.CharField(max_length=16, blank=True)
    color_to = models.CharField(max_length=16, blank=True)
    short_description = models.CharField(max_length=255, blank=True)
    sdk = models.CharField(max_length=32, blank=True)
    head_revision = models.CharField(max_length=64, blank=True)
    head_at = models.DateTimeField(null=True, blank=True)
    synced_at = models.DateTimeField(null=True, blank=True)

    placement = models.CharField(max_length=16, choices=Placement, default=Placement.AUTOMATIC)
    placement_worker = models.ForeignKey(
        "workers.Worker", null=True, blank=True, on_delete=models.PROTECT, related_name="+"
    )
    app_port = models.PositiveIntegerField(null=True, blank=True, help_text="overrides the front matter's app_port")
    startup_timeout_seconds = models.PositiveIntegerField(null=True, blank=True)
    keep_prefix = models.BooleanField(null=True, blank=True, help_text="empty: as the front matter says, else stripped")
    rewrite_host = models.BooleanField(null=True, blank=True, help_text="send Host and Origin as localhost")

    created_at = models.DateTimeField(db_default=Now())

    class Meta:
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

    owner = models.CharField(max_length=255, help_text="a user's name, or an organisation that is only a name")
    name = models.CharField(max_length=255)
    visibility = models.CharField(max_length=16, choices=Visibility, default=Visibility.PRIVATE)
    topics = ArrayField(models.CharField(max_length=64), default=list, blank=True)
    default_branch = models.CharField(max_length=255, default="main")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [models.UniqueConstraint(Lower("owner"), Lower("name"), name="one_repository_per_name")]
        verbose_name_plural = "local repositories"

    def __str__(self) -> str:
        return f"{self.owner}/{self.name}"


class LocalCollaborator(models.Model):
    """What a user other than the owner may do with a local repository."""

    class Permission(models.TextChoices):
        READ = "read", "Read"
        WRITE = "write", "Write"
        ADMIN = "admin", "Admin"

    repository = models.ForeignKey(LocalRepository, on_delete=models.CASCADE, related_name="collaborators")
    user = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    permission = models.CharField(max_length=8, choices=Permission)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["repository", "user"], name="one_permission_per_user")]

    def __str__(self) -> str:
        return f"{self.user}: {self.permission}"
