"""Spaces and local repositories in the admin: what an operator may set, and nothing that the forge says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.http import HttpRequest
from django.urls import path
from django.utils.translation import gettext_lazy as _

from jobs import audit, notices
from spaces.models import LocalCollaborator, LocalRepository, Space
from spaces.placement import may_place
from spaces.placement_admin import placement_view
from spaces.token_admin import PersonalTokenAdmin as PersonalTokenAdmin

if TYPE_CHECKING:  # Django's own classes take no type arguments when the program runs
    SpaceModelAdmin = admin.ModelAdmin[Space]
    RepositoryModelAdmin = admin.ModelAdmin[LocalRepository]
    CollaboratorTabularInline = admin.TabularInline[LocalCollaborator, LocalRepository]
else:
    SpaceModelAdmin = RepositoryModelAdmin = admin.ModelAdmin
    CollaboratorTabularInline = admin.TabularInline

_SETTINGS = (
    "app_port",
    "startup_timeout_seconds",
    "keep_prefix",
    "rewrite_host",
)


@admin.register(Space)
class SpaceAdmin(SpaceModelAdmin):
    """The operator's own columns can be changed, those that copy the forge cannot; a change touches later starts."""

    list_display = ("__str__", "title", "visibility", "topic_list", "placement", "placement_worker", "synced_at")
    list_filter = ("visibility", "placement")
    list_select_related = ("placement_worker",)
    search_fields = ("owner", "name", "title", "repository_id")
    fieldsets = (
        (None, {"fields": ("owner", "name", "repository_id", "visibility", "topics", "head_revision", "head_at")}),
        (_("Placement"), {"fields": ("placement", "placement_worker")}),
        (_("Running it"), {"fields": ("app_port", "startup_timeout_seconds", "keep_prefix", "rewrite_host")}),
    )
    readonly_fields = (
        *("owner", "name", "repository_id", "visibility", "topics", "head_revision", "head_at"),
        *("placement", "placement_worker"),  # set on a page of their own, which shows what that does
    )

    def get_urls(self) -> list[Any]:
        view = self.admin_site.admin_view(placement_view)
        return [path("<int:object_id>/placement/", view, name="spaces_space_placement"), *super().get_urls()]

    @admin.display(description=_("topics"))
    def topic_list(self, space: Space) -> str:
        return ", ".join(space.topics)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may_place(request.user)

    def has_view_permission(self, request: HttpRequest, obj: Space | None = None) -> bool:
        return may_place(request.user)

    def has_change_permission(self, request: HttpRequest, obj: Space | None = None) -> bool:
        return may_place(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # a Space is a repository with a topic

    def has_delete_permission(self, request: HttpRequest, obj: Space | None = None) -> bool:
        return False  # its jobs and their history hang on it

    def save_model(self, request: HttpRequest, obj: Space, form: Any, change: bool) -> None:
        before = Space.objects.filter(pk=obj.pk).values(*_SETTINGS).first()
        obj.save(update_fields=list(_SETTINGS))  # the rest of the row may have changed since the form was drawn
        after = Space.objects.filter(pk=obj.pk).values(*_SETTINGS).first()
        old, new = _differing(before or {}, after or {})
        if old != new:
            audit.record("space_settings", obj=obj, actor=request.user, request=request, before=old, after=new)


class CollaboratorInline(CollaboratorTabularInline):
    model = LocalCollaborator
    extra = 0
    autocomplete_fields = ("user",)


@admin.register(LocalRepository)
class LocalRepositoryAdmin(RepositoryModelAdmin):
    """Who may see and change a repository of the local forge. Its content comes by `manage.py import_space`."""

    list_display = ("__str__", "visibility", "topic_list", "created_at")
    list_filter = ("visibility",)
    search_fields = ("owner", "name")
    readonly_fields = ("owner", "name", "created_at")
    fields = ("owner", "name", "visibility", "topics", "default_branch", "created_at")
    inlines = (CollaboratorInline,)

    @admin.display(description=_("topics"))
    def topic_list(self, repository: LocalRepository) -> str:
        return ", ".join(repository.topics)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: LocalRepository | None = None) -> bool:
        return False  # the files would stay behind, and the Space's history would lose its name

    def save_model(self, request: HttpRequest, obj: LocalRepository, form: Any, change: bool) -> None:
        obj.topics = sorted({topic.strip().lower() for topic in obj.topics})
        super().save_model(request, obj, form, change)

    def save_related(self, request: HttpRequest, form: Any, formsets: Any, change: bool) -> None:
        """Save the collaborators too, then tell: who was cut off must lose what he has open."""
        before = form.initial
        super().save_related(request, form, formsets, change)
        repository: LocalRepository = form.instance
        cleaned = form.cleaned_data
        changed = {name: cleaned[name] for name in form.changed_data if cleaned.get(name) != before.get(name)}
        if not changed and not any(formset.has_changed() for formset in formsets):
            return
        people = {c.user.get_username(): c.permission for c in repository.collaborators.select_related("user")}
        audit.record(
            "repository_access",
            obj=repository,
            actor=request.user,
            request=request,
            before={name: before.get(name) for name in changed},
            after={**changed, "collaborators": people},
        )
        space = Space.objects.filter(repository_id=str(repository.pk)).first()
        if space is not None:
            notices.publish("access", space=space.pk)


def _differing(before: dict[str, Any], after: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the two halves of an audit row, with only what differs."""
    keys = [key for key in after if before.get(key) != after[key]]
    return {key: _plain(before.get(key)) for key in keys}, {key: _plain(after[key]) for key in keys}


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | bool | None) else str(value)
