"""What the templates of a transcript need beyond Django's own filters."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from typing import Any

from django import template
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, pgettext

from history.access.keys import SCOPE_LABELS
from history.context.compression import ProblemCode
from history.context.compression.checks import SENTENCES
from history.entries import Media, ToolResult, ToolResults, thaw
from history.markdown import render
from history.text import client_tags
from history.text.client_tags import TaggedText
from history.text.media_types import IMAGES
from history.transcripts.previews import Preview, preview

register = template.Library()

LINE_CHARS = 100
# docs/relay-recording.md has what counts.
RECOGNISED_BY = {
    "new": gettext_lazy("not recognised: it began a new session"),
    "header": gettext_lazy("the id that the call named"),
    "client id": gettext_lazy("the program’s own id"),
    "previous response": gettext_lazy("the answer that it goes on from"),
    "cache key": gettext_lazy("its cache key"),
    "fingerprint": gettext_lazy("what had been said before"),
    "sticky": gettext_lazy("the same first words a moment ago"),
}


@register.filter
def unwrapped(text: str) -> list[TaggedText]:
    """What somebody said, apart from what their program wrapped around it."""
    return client_tags.split_client_tags(text)


@register.filter
def markdown(text: str) -> SafeString:
    return render(text)


@register.simple_tag
def prose(text: str, seq: int, path: str) -> SafeString:
    """A text of an entry. Where it stands keeps the ids of its footnotes apart from everybody else's."""
    return render(text, prefix=f"m{seq}-{path.replace('.', '-')}-")


@register.filter
def recognised(by: str) -> str:
    """How the relay knew which session a call belongs to, in words."""
    return str(RECOGNISED_BY.get(by, by))


@register.filter
def preview_of(text: str, limit: int) -> Preview:
    return preview(text, limit)


@register.filter
def thousands(number: int) -> str:
    """Digits in groups, whatever the language: these are counts to compare, not prose."""
    return f"{number:,}".replace(",", "\u202f")


@register.filter
def whole(number: Decimal) -> int:
    return int(number)


@register.filter
def unlocalized(number: float) -> str:
    """A number for machines, whatever the language writes between its digits."""
    return f"{number}"


@register.filter
def dollars(amount: Decimal) -> str:
    """Small amounts to the hundredth of a cent: single answers cost no more."""
    return f"${amount:,.4f}" if abs(amount) < 1 else f"${amount:,.2f}"


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
def long_duration(seconds: float) -> str:
    """The same for times that may be hours or days: 3 h, 12 d."""
    if seconds < 2 * 3600:
        return duration(seconds)
    if seconds < 2 * 86_400:
        return _("%(hours)d h") % {"hours": seconds / 3600}
    return _("%(days)d d") % {"days": seconds / 86_400}


@register.filter
def moment(time: datetime) -> str:
    """The hour today, the day before that: in the zone and the language of whoever reads."""
    local = timezone.localtime(time)
    is_today = local.date() == timezone.localtime().date()
    return date_format(local, "TIME_FORMAT" if is_today else "SHORT_DATETIME_FORMAT")


@register.filter
def how_long_ago(time: datetime) -> str:
    """Django's `timesince` begins at a minute and says 0 minutes before."""
    is_new = (timezone.now() - time).total_seconds() < 60
    return _("less than a minute") if is_new else timesince(time)


@register.filter
def in_full(time: datetime) -> str:
    """The day and the hour, and of which zone: for whoever compares it with a log from elsewhere."""
    return f"{date_format(timezone.localtime(time), 'DATETIME_FORMAT')} ({timezone.get_current_timezone_name()})"


@register.filter
def argument(arguments: str, name: str) -> Any:
    """One argument of a call, where it can be read."""
    try:
        value = json.loads(arguments)
    except ValueError:
        return ""
    return value.get(name) or "" if isinstance(value, dict) else ""


@register.filter
def choices(arguments: str) -> list[str]:
    """The answers that a question offers: texts that are not blank, each once."""
    offered = argument(arguments, "choices")
    texts = [choice.strip() for choice in offered if isinstance(choice, str)] if isinstance(offered, list) else []
    return list(dict.fromkeys(filter(None, texts)))


@register.filter
def field(path: str, name: str | int) -> str:
    """One step further into the JSON of an entry."""
    return f"{path}.{name}" if path else str(name)


@register.filter
def result_path(result: ToolResult, entry: ToolResults) -> str:
    return f"results.{next(place for place, other in enumerate(entry.results) if other is result)}"


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
    return json.dumps(thaw(value), ensure_ascii=False, indent=2)


@register.filter
def is_picture(part: Media) -> bool:
    """Whether a page shows it; whoever serves the bytes looks at them again."""
    return part.media_type in IMAGES


@register.filter
def summary_problem(told: Mapping[str, Any]) -> str:
    """Why a summary was not used; an entry may name a reason that this version does not know."""
    values = {name: str(value) for name, value in (told.get("problem_values") or {}).items()}
    try:
        return _(SENTENCES[ProblemCode(told.get("problem", ""))]) % values
    except (ValueError, KeyError):
        return str(told.get("problem", ""))


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


@register.filter
def move_words(reason: str) -> str:
    """Why a conversation went on from another place than its end."""
    words = {
        "rollback": _("Rolled back to an earlier message."),
        "switch": _("Continued from another branch."),
        "edit": _("Something said before was changed."),
        "regenerate": _("Another answer was asked for."),
        "retry": _("The program made its call once more."),
        "rewritten": _("The program wrote the conversation anew."),
        "compacted": _("The program summarised what came before."),
        "whole answer": _("The whole answer came after a part of it had been kept."),
        "import": _("It was so where it was imported from."),
    }
    return words.get(reason, reason)


@register.filter
def scope_words(scope: str) -> str:
    """What a key with this scope may do."""
    return str(SCOPE_LABELS.get(scope, scope))


@register.filter
def end_words(reason: str) -> str:
    """Why an answer ended before it was whole, where it does not say so itself."""
    words = {
        "stopped": _("It was stopped."),
        "client_gone": _("The client disconnected."),
        "timeout": _("It took too long."),
        "upstream_error": _("The provider reported an error."),
        "refused": _("The request could not be read here."),
        "upstream_cut": _("The connection to the provider broke."),
        "upstream_unreadable": _("The provider sent something that is not an answer."),
        "server_lost": _("The server went down while it was being written."),
        "not_kept": _("It was longer: the server had no room to keep the rest."),
        "damaged": _("Part of it was damaged on disk and is missing."),
        "length": _("It reached the longest an answer may be."),
        "content_filter": _("A filter of the provider ended it."),
        "refusal": _("The model refused to answer."),
    }
    return words.get(reason, "")
