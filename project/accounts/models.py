"""Users, one-time sign-in links and failed sign-ins."""

import zoneinfo

from django.contrib.auth.models import AbstractUser
from django.core.exceptions import ValidationError
from django.db import models
from django.utils import timezone
from django.utils.translation import gettext_lazy as _


def check_time_zone(name: str) -> None:
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ValidationError(_("There is no time zone “%(name)s”."), params={"name": name}) from error


class User(AbstractUser):
    class Language(models.TextChoices):
        BROWSER = "", _("Same as browser")
        # Each in its own language, so that users find theirs on a page in any language.
        ENGLISH = "en", "English"
        CHINESE = "zh-hans", "简体中文"

    class Theme(models.TextChoices):
        SYSTEM = "system", _("Same as system")
        LIGHT = "light", _("Light")
        DARK = "dark", _("Dark")

    language = models.CharField(_("language"), max_length=10, blank=True, default="", choices=Language.choices)
    theme = models.CharField(_("theme"), max_length=10, default=Theme.SYSTEM, choices=Theme.choices)
    time_zone = models.CharField(_("time zone"), max_length=60, blank=True, default="", validators=[check_time_zone])

    def __str__(self) -> str:
        return self.get_full_name() or self.username

    @property
    def may_use_admin(self) -> bool:
        """Whether the admin has anything to show: staff without a permission find it empty."""
        return self.is_staff and (self.is_superuser or bool(self.get_all_permissions()))


class SignInLink(models.Model):
    """A link that signs its user in once. Only its hash is stored."""

    token_hash = models.CharField(max_length=64, unique=True)
    user = models.ForeignKey(User, on_delete=models.CASCADE, related_name="sign_in_links")
    created_by = models.ForeignKey(User, on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    created_at = models.DateTimeField(_("created"), default=timezone.now)
    expires_at = models.DateTimeField(_("expires"))
    used_at = models.DateTimeField(_("used"), null=True, blank=True)

    class Meta:
        verbose_name = _("sign-in link")
        verbose_name_plural = _("sign-in links")

    def __str__(self) -> str:
        return f"{self.user} ({self.created_at:%Y-%m-%d %H:%M})"


class SignInFailure(models.Model):
    """A wrong password, or one that is being checked. The name is hashed: users type passwords into the wrong field."""

    name_hash = models.CharField(max_length=64)
    address = models.CharField(max_length=45)
    at = models.DateTimeField(default=timezone.now, db_index=True)

    class Meta:
        indexes = [
            models.Index(fields=["address", "at"], name="sign_in_failure_of_address"),
            models.Index(fields=["name_hash", "at"], name="sign_in_failure_of_name"),
        ]
