"""What the templates of a transcript need beyond Django's own filters."""

from __future__ import annotations

import json
from typing import Any

from django import template
from django.utils.safestring import SafeString
from django.utils.translation import gettext as _
from django.utils.translation import pgettext

from history.entries import Media, thawed
from history.markdown import render
from history.media import IMAGES
from history.previews import Preview, preview

register = template.Library()

LINE_CHARS = 100


@register.filter
def markdown(text: str) -> SafeString:
    return render(text)


@register.filter
def preview_of(text: str, limit: int) -> Preview:
    return preview(text, limit)


@register.filter
def thousands(number: int) -> str:
    """Digits in groups, whatever the language: these are counts to compare, not prose."""
    return f"{number:,}".replace(",", "\u202f")


@register.filter
def duration(seconds: float | None) -> str:
    """As one would say it: 0.4 s, 12 s, 3 min."""
    if seconds is None:
        return ""
    if seconds < 10:
        return _("%(seconds).1f s") % {"seconds": seconds}
    if seconds < 120:
        return _("%(seconds)d s") % {"seconds": seconds}
    return _("%(minutes)d min") % {"minutes": seconds / 60}


@register.filter
def as_line(arguments: str) -> str:
    """A tool's arguments on one line; what is no JSON object is shown as it is."""
    text = preview(arguments, 10 * LINE_CHARS).text
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict):
        text = ", ".join(f"{name} = {json.dumps(item, ensure_ascii=False)}" for name, item in value.items())
    text = " ".join(text.split())
    return text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}…"


@register.filter
def indented(arguments: str) -> str:
    """The JSON of a call with a line for each argument, where it is whole; otherwise as it is."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except ValueError:
        return arguments


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(thawed(value), ensure_ascii=False, indent=2)


@register.filter
def is_picture(part: Media) -> bool:
    """Whether a page shows it; whoever serves the bytes looks at them again."""
    return part.media_type in IMAGES


@register.filter
def status_word(status: str) -> str:
    """The word beside the dot."""
    words = {
        "complete": pgettext("status", "complete"),
        "interrupted": pgettext("status", "interrupted"),
        "failed": pgettext("status", "failed"),
        "pending": pgettext("status", "no result"),
        "success": pgettext("status", "success"),
        "skipped": pgettext("status", "skipped"),
    }
    return words.get(status, status)
