"""Template tag of the style sheets and scripts of a page."""

from typing import Any

from django import template
from django.conf import settings
from django.contrib.staticfiles.storage import staticfiles_storage
from django.templatetags.static import static

from project.server.bundles import BUNDLES, FOLDER, is_module

register = template.Library()


@register.inclusion_tag("partials/bundle.html")
def bundle(name: str) -> dict[str, Any]:
    """One file if static files are collected, else all files of the bundle."""
    is_joined = not settings.DEBUG and FOLDER + name in getattr(staticfiles_storage, "hashed_files", ())
    paths = (FOLDER + name,) if is_joined else BUNDLES[name]
    files = [{"address": static(path), "is_module": is_module(path)} for path in paths]
    return {"files": files, "is_style": name.endswith(".css")}
