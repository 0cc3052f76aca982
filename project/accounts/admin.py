"""User accounts in the admin."""

from typing import Any

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from project.accounts.models import User
from relay.admin.usage import AllowanceInline


@admin.register(User)
class PersonAdmin(UserAdmin[User]):
    inlines = (AllowanceInline,)
    fieldsets = (*(UserAdmin.fieldsets or ()), (_("Preferences"), {"fields": ("language", "theme", "time_zone")}))

    def get_fieldsets(self, request: HttpRequest, obj: User | None = None) -> Any:
        """Staff who may not change accounts see neither passwords nor permissions, nor links to change them."""
        if obj is None or self.has_change_permission(request, obj):
            return super().get_fieldsets(request, obj)
        fields = ("username", "first_name", "last_name", "is_active", "is_staff", "last_login", "date_joined")
        return ((None, {"fields": fields}),)
