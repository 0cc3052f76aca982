"""People in the admin."""

from django.contrib import admin
from django.contrib.auth.admin import UserAdmin
from django.utils.translation import gettext_lazy as _

from project.accounts.models import User


@admin.register(User)
class PersonAdmin(UserAdmin[User]):
    fieldsets = (*(UserAdmin.fieldsets or ()), (_("Preferences"), {"fields": ("language", "theme", "time_zone")}))
