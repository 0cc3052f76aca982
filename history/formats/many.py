"""Files with many conversations; an unreadable one is reported and skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from history.dialects.json_access import is_too_deep, string
from history.entries import EntryError
from history.formats.base import Conversation, FormatError, UnreadableConversation, gettext_noop
from history.formats.sources import Source
from history.text.lazy import LazyText, why_of

Convert = Callable[[Mapping[str, Any]], Iterator[Conversation]]


def read_each(source: Source, convert: Convert) -> Iterator[Conversation | UnreadableConversation]:
    """The conversations of a file of lines, of one list, or of one object."""
    for place, value, problem in _values(source):
        if problem or not isinstance(value, Mapping):
            yield UnreadableConversation(why=problem or gettext_noop("this is not an object"), title=place)
        else:
            yield from _converted(value, convert, place)


def _values(source: Source) -> Iterator[tuple[str, Any, str]]:
    match source.sample.shape:
        case "lines":
            for line in source.lines(as_one=False):
                yield line.place, line.value, line.problem
        case "array":
            for number, value in enumerate(source.items(), 1):
                yield LazyText(gettext_noop("item %(number)s"), number=number), value, ""
        case _:
            yield "", source.document(), ""


def _converted(
    value: Mapping[str, Any], convert: Convert, place: str
) -> Iterator[Conversation | UnreadableConversation]:
    """Unexpected errors in foreign data end this conversation alone, not the file."""
    title = _named(value) or place
    if is_too_deep(value):
        yield UnreadableConversation(why=gettext_noop("it is nested too deeply to be read"), title=title)
        return
    try:
        yield from convert(value)
    except (FormatError, EntryError) as error:
        yield UnreadableConversation(why=why_of(error), title=title)
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        why = LazyText(
            gettext_noop("it is not written as expected (%(error)s)"), error=f"{type(error).__name__}: {error}"
        )
        yield UnreadableConversation(why=why, title=title)


def _named(value: Mapping[str, Any]) -> str:
    return next((found for key in ("title", "name", "uuid", "id") if (found := string(value.get(key)))), "")[:200]
