"""App configuration of Django's admin whose pages are imported with the URLs, not by every command."""

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib import admin
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.core import checks


class AdminConfig(SimpleAdminConfig):
    def ready(self) -> None:
        checks.register(check_dependencies, checks.Tags.admin)
        checks.register(check_pages, checks.Tags.admin)


def check_pages(app_configs: Sequence[AppConfig] | None, **options: Any) -> list[checks.CheckMessage]:
    """Django's check of the registered pages, after they are registered."""
    admin.autodiscover()
    return check_admin_app(app_configs, **options)
