"""Translation of notes and lazy texts (`history.text.lazy`) for the current reader."""

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
    """Translate lazy texts only; plain strings may be user content."""
    return worded(text) if isinstance(text, LazyText) else text


def note_words(note: Note) -> str:
    times = f" (× {note.count:,})" if note.count > 1 else ""
    place = f" – {filled_in(note.where)[:200]}" if note.where else ""
    return f"{worded(note.what)}{times}{place}"
