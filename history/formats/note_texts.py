"""What modules that know no language have said (`history.text.lazy`), in the language of whoever reads it."""

from __future__ import annotations

from django.utils.translation import gettext, gettext_noop

from history.formats.base import Note
from history.text.lazy import LazyText

LEVELS = {"repaired": gettext_noop("repaired"), "lost": gettext_noop("lost"), "ignored": gettext_noop("left out")}


def level_word(level: str) -> str:
    return gettext(LEVELS.get(level, level))


def worded(text: str) -> str:
    """A marked sentence, filled in or not."""
    if isinstance(text, LazyText) and text.values:
        values = {name: filled_in(value) if isinstance(value, str) else value for name, value in text.values.items()}
        return gettext(text.sentence) % values
    return gettext(text) if text else ""


def filled_in(text: str) -> str:
    """What may be anybody's words: only what says of itself that it is a sentence is translated."""
    return worded(text) if isinstance(text, LazyText) else text


def note_words(note: Note) -> str:
    times = f" (× {note.count:,})" if note.count > 1 else ""
    place = f" – {filled_in(note.where)[:200]}" if note.where else ""
    return f"{worded(note.what)}{times}{place}"
