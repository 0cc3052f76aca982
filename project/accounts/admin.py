"""People in the admin."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.utils.translation import gettext_lazy as _

from project.accounts.models import User
from relay.admin import AllowanceInline


@admin.register(User)
class PersonAdmin(UserAdmin[User]):
    inlines = (AllowanceInline,)
    fieldsets = (*(UserAdmin.fieldsets or ()), (_("Preferences"), {"fields": ("language", "theme", "time_zone")}))
