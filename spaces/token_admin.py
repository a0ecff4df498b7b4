"""Personal tokens as operators see them: whose they are, since when and until when, and a way to end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.contrib import admin, messages
from django.contrib.auth.models import User
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _
from django.utils.translation import ngettext

from spaces import tokens
from spaces.models import PersonalToken
from spaces.placement import may_place

if TYPE_CHECKING:  # Django's own class takes no type arguments when the program runs
    TokenModelAdmin = admin.ModelAdmin[PersonalToken]
else:
    TokenModelAdmin = admin.ModelAdmin


@admin.register(PersonalToken)
class PersonalTokenAdmin(TokenModelAdmin):
    """Read-only, but for revoking. The tokens themselves are nowhere, and their hashes are shown to nobody."""

    list_display = ("name", "user", "created_at", "expires_at", "last_used_at")
    search_fields = ("name", "user__username")
    list_select_related = ("user",)
    exclude = ("token_hash",)
    actions = ("revoke",)

    def has_module_permission(self, request: HttpRequest) -> bool:
        return may_place(request.user)

    def has_view_permission(self, request: HttpRequest, obj: PersonalToken | None = None) -> bool:
        return may_place(request.user)

    def has_add_permission(self, request: HttpRequest) -> bool:
        return False  # made by the person whom it stands for

    def has_change_permission(self, request: HttpRequest, obj: PersonalToken | None = None) -> bool:
        return False

    def has_delete_permission(self, request: HttpRequest, obj: PersonalToken | None = None) -> bool:
        return False  # revoked instead: with its notice and a line in the audit

    @admin.action(description=_("Revoke the selected tokens"))
    def revoke(self, request: HttpRequest, chosen: QuerySet[PersonalToken]) -> None:
        assert isinstance(request.user, User), "the admin knows who acts"
        rows = list(chosen)
        for row in rows:
            tokens.revoke(row, actor=request.user, request=request)
        text = ngettext("%d token was revoked.", "%d tokens were revoked.", len(rows)) % len(rows)
        self.message_user(request, text, messages.SUCCESS)
