"""Which texts people can see, and whether each has a translation.

Reads templates and Python itself instead of calling the gettext tools, which a machine may not have. For those who
change Parley (`make messages`, and a test); running it needs none of this, only the compiled `.mo` file.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from django.utils.translation.template import templatize

if TYPE_CHECKING:
    import polib

APPS = ("project", "history", "relay")
# Which arguments of each function are texts: the context, the singular, the plural.
FUNCTIONS: dict[str, tuple[int | None, int, int | None]] = {
    "_": (None, 0, None),
    "gettext": (None, 0, None),
    "gettext_lazy": (None, 0, None),
    "gettext_noop": (None, 0, None),
    "ngettext": (None, 0, 1),
    "ngettext_lazy": (None, 0, 1),
    "pgettext": (0, 1, None),
    "pgettext_lazy": (0, 1, None),
    "npgettext": (0, 1, 2),
    "npgettext_lazy": (0, 1, 2),
}
# Django turns a template into a text in which its tags became calls, as xgettext wants it: not quite Python.
CALL_IN_TEMPLATE = re.compile(
    r"\b(?P<call>n?p?gettext\((?:[^()\"']|u?\"(?:[^\"\\]|\\.)*\"|u?'(?:[^'\\]|\\.)*')*\)|_\((?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*')\))",
    re.DOTALL,
)


@dataclass(frozen=True)
class Text:
    singular: str
    plural: str = ""
    context: str = ""
    places: set[str] = field(default_factory=set, compare=False, hash=False)


def texts_in(root: Path) -> list[Text]:
    """Each text once, in order, with all the files that show it."""
    found: dict[Text, Text] = {}
    for path, text in _all_texts(root):
        found.setdefault(text, text).places.add(path.relative_to(root).as_posix())
    return sorted(found.values(), key=lambda text: (min(text.places), text.singular, text.context))


def _all_texts(root: Path) -> Iterator[tuple[Path, Text]]:
    for path in sorted((root / "templates").rglob("*.html")):
        for text in texts_of_template(path.read_text(encoding="utf-8")):
            yield path, text
    for app in APPS:
        for path in sorted((root / app).rglob("*.py")):
            if "migrations" not in path.parts:
                for text in texts_of_python(path.read_text(encoding="utf-8")):
                    yield path, text


def texts_of_template(source: str) -> Iterator[Text]:
    for match in CALL_IN_TEMPLATE.finditer(templatize(source)):
        yield from texts_of_python(match["call"])


def texts_of_python(source: str) -> Iterator[Text]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call) and (places := FUNCTIONS.get(_name(node.func))):
            context, singular, plural = (_constant(node, place) for place in places)
            if singular:
                yield Text(singular, plural, context)


def _name(function: ast.expr) -> str:
    return function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")


def _constant(call: ast.Call, place: int | None) -> str:
    if place is None or place >= len(call.args):
        return ""
    argument = call.args[place]
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else ""


def find(catalogue: polib.POFile, text: Text) -> polib.POEntry | None:
    return catalogue.find(text.singular, msgctxt=text.context or False, include_obsolete_entries=False)


def is_translated(entry: polib.POEntry | None, text: Text) -> bool:
    if entry is None or "fuzzy" in entry.flags:
        return False
    if text.plural:
        return entry.msgid_plural == text.plural and bool(entry.msgstr_plural) and all(entry.msgstr_plural.values())
    return bool(entry.msgstr)


def missing_from(catalogue: polib.POFile, texts: list[Text]) -> list[Text]:
    return [text for text in texts if not is_translated(find(catalogue, text), text)]


def unused_in(catalogue: polib.POFile, texts: list[Text]) -> list[str]:
    used = {(text.singular, text.context) for text in texts}
    return [entry.msgid for entry in catalogue if (entry.msgid, entry.msgctxt or "") not in used]


def brought_up_to_date(catalogue: polib.POFile, texts: list[Text]) -> polib.POFile:
    """The same translations for exactly these texts; a new text is there without a translation."""
    import polib

    fresh = polib.POFile(wrapwidth=120)
    fresh.metadata = catalogue.metadata
    for text in texts:
        known = find(catalogue, text)
        entry = polib.POEntry(
            msgid=text.singular,
            msgid_plural=text.plural,
            msgctxt=text.context or None,
            occurrences=[(place, "") for place in sorted(text.places)],
        )
        if text.plural:
            entry.msgstr_plural = known.msgstr_plural if known and known.msgstr_plural else {0: ""}
        else:
            entry.msgstr = known.msgstr if known else ""
        fresh.append(entry)
    return fresh
