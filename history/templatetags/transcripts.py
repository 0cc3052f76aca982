"""Template filters of transcripts: Markdown, numbers, times, arguments of tools and labels of codes."""

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from functools import partial
from typing import Any

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _, gettext_lazy, pgettext_lazy
from django_stubs_ext import StrOrPromise

from history.access.keys import SCOPE_LABELS
from history.clients import split_client_tags
from history.context.compression.summaries import ProblemCode
from history.dialects.tools import parse_arguments
from history.entries import JsonObject, Media, ToolResult, ToolResults, thaw
from history.markdown import render
from history.text.media_types import IMAGES
from history.transcripts.previews import preview

register = template.Library()

LINE_CHARS = 100
# docs/relay-recording.md explains them.
_RECOGNISED_BY = {
    "new": gettext_lazy("not recognised: started a new session"),
    "header": gettext_lazy("session id in the call"),
    "client id": gettext_lazy("program’s session id"),
    "previous response": gettext_lazy("continued answer"),
    "cache key": gettext_lazy("cache key"),
    "fingerprint": gettext_lazy("earlier messages"),
    "sticky": gettext_lazy("same first message"),
}
_STATUSES = {
    "complete": pgettext_lazy("status", "complete"),
    "interrupted": pgettext_lazy("status", "interrupted"),
    "failed": pgettext_lazy("status", "failed"),
    "pending": pgettext_lazy("status", "no result"),
    "success": pgettext_lazy("status", "success"),
    "skipped": pgettext_lazy("status", "skipped"),
}
# Why a conversation continued at an entry that is not its end.
_MOVES = {
    "rollback": gettext_lazy("Rolled back to an earlier message."),
    "switch": gettext_lazy("Continued from another branch."),
    "edit": gettext_lazy("An earlier message was changed."),
    "regenerate": gettext_lazy("The answer was regenerated."),
    "retry": gettext_lazy("The program repeated its call."),
    "rewritten": gettext_lazy("The program rewrote the conversation."),
    "compacted": gettext_lazy("The program summarised earlier messages."),
    "whole answer": gettext_lazy("The whole answer arrived after a part of it was stored."),
    "import": gettext_lazy("As in the imported file."),
}


def label_of(labels: Mapping[str, StrOrPromise], code: str) -> str:
    """The text of a code; an unknown code, of another version, is shown as it is."""
    return str(labels.get(code, code))


recognition_label = partial(label_of, _RECOGNISED_BY)
register.filter("recognition_label", recognition_label)
register.filter("scope_label", partial(label_of, SCOPE_LABELS))
register.filter("status_label", partial(label_of, _STATUSES))
register.filter("move_reason", partial(label_of, _MOVES))
register.filter("split_client_tags", split_client_tags)
register.filter("markdown", render)
register.filter("preview_of", preview)


@register.simple_tag
def prose(text: str, seq: int, path: str) -> SafeString:
    """A text of an entry; the prefix makes the ids of its footnotes unique on the page."""
    return render(text, prefix=f"m{seq}-{path.replace('.', '-')}-")


@register.filter
def thousands(number: int | Decimal) -> str:
    """Digits in groups, the same in all languages."""
    return f"{int(number):,}".replace(",", "\u202f")


@register.filter
def dollars(amount: Decimal) -> str:
    """Four decimals below one dollar, because a single answer costs little."""
    return f"${amount:,.4f}" if abs(amount) < 1 else f"${amount:,.2f}"


@register.filter
def duration(seconds: float | None) -> str:
    """0.4 s, 12 s, 3 min."""
    if seconds is None:
        return ""
    if seconds < 10:
        return _("%(seconds).1f s") % {"seconds": seconds}
    if seconds < 120:
        return _("%(seconds)d s") % {"seconds": seconds}
    return _("%(minutes)d min") % {"minutes": seconds / 60}


@register.filter
def long_duration(seconds: float) -> str:
    """As `duration`, also 3 h, 12 d."""
    if seconds < 2 * 3600:
        return duration(seconds)
    if seconds < 2 * 86_400:
        return _("%(hours)d h") % {"hours": seconds / 3600}
    return _("%(days)d d") % {"days": seconds / 86_400}


@register.filter
def moment(time: datetime) -> str:
    """The time for today, else the date and time, in the reader's zone and language."""
    local = timezone.localtime(time)
    is_today = local.date() == timezone.localtime().date()
    return date_format(local, "TIME_FORMAT" if is_today else "SHORT_DATETIME_FORMAT")


@register.filter
def how_long_ago(time: datetime) -> str:
    """Django's `timesince` shows 0 minutes for less than a minute."""
    is_new = (timezone.now() - time).total_seconds() < 60
    return _("less than a minute") if is_new else timesince(time)


@register.filter
def full_datetime(time: datetime) -> str:
    return f"{date_format(timezone.localtime(time), 'DATETIME_FORMAT')} ({timezone.get_current_timezone_name()})"


@register.filter
def argument(arguments: str, name: str) -> Any:
    return (parse_arguments(arguments) or {}).get(name) or ""


@register.filter
def choices(arguments: str) -> list[str]:
    offered = argument(arguments, "choices")
    texts = [choice.strip() for choice in offered if isinstance(choice, str)] if isinstance(offered, list) else []
    return list(dict.fromkeys(filter(None, texts)))


@register.filter
def field(path: str, name: str | int) -> str:
    return f"{path}.{name}" if path else str(name)


@register.filter
def result_path(result: ToolResult, entry: ToolResults) -> str:
    return f"results.{next(place for place, other in enumerate(entry.results) if other is result)}"


@register.filter
def arguments_line(arguments: str) -> str:
    """Arguments of a tool on one line; text that is not a JSON object is unchanged."""
    text = preview(arguments, 10 * LINE_CHARS).text
    if (values := parse_arguments(text)) is not None:
        text = ", ".join(f"{name} = {json.dumps(item, ensure_ascii=False)}" for name, item in values.items())
    text = " ".join(text.split())
    return text if len(text) <= LINE_CHARS else f"{text[:LINE_CHARS]}…"


@register.filter
def indented(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False, indent=2)
    except ValueError:
        return arguments


@register.filter
def as_json(value: Any) -> str:
    return json.dumps(thaw(value), ensure_ascii=False, indent=2)


@register.filter
def is_picture(part: Media) -> bool:
    """Whether a page shows it. The view that serves the bytes checks them again."""
    return part.media_type in IMAGES


@register.filter
def summary_problem(metadata: JsonObject) -> str:
    """Why a summary was not used. An entry of another version may have an unknown reason."""
    values = {name: str(value) for name, value in (metadata.get("problem_values") or {}).items()}
    try:
        return _(ProblemCode(metadata.get("problem", "")).sentence) % values
    except (ValueError, KeyError):
        return str(metadata.get("problem", ""))


@register.filter
def end_reason_text(reason: str) -> str:
    words = {
        "stopped": _("It was stopped."),
        "client_gone": _("The client disconnected."),
        "timeout": _("It took too long."),
        "upstream_error": _("The provider reported an error."),
        "refused": _("The server could not read the request."),
        "upstream_cut": _("The connection to the provider was lost."),
        "upstream_unreadable": _("The provider sent an invalid answer."),
        "server_lost": _("The server stopped during the answer."),
        "not_kept": _("The server had no space for the rest."),
        "damaged": _("Part of the answer was damaged on disk and is missing."),
        "length": _("The answer reached the maximum length."),
        "content_filter": _("A filter of the provider stopped the answer."),
        "refusal": _("The model refused to answer."),
    }
    return words.get(reason, "")
