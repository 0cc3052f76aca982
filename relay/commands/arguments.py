"""The words after a command, as arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.utils.translation import gettext as _

from relay.commands.usage import BadCommand, free_text, house_usage, tool_usage
from relay.commands.words import Word, words_of
from relay.tools.base import Tool
from relay.tools.schemas import BadArguments, checked

MOST_SHOWN = 500
TITLE_CHARS = 200
BEYOND_NUMBERS = 10**18
YES = ("true", "yes", "on", "1")
NO = ("false", "no", "off", "0")

_NUMBER = re.compile(r"[0-9]{1,15}")
_ENTRY = re.compile(r"[#＃]([0-9]{1,15})")


# Of tools.


def tool_arguments(tool: Tool, line: str) -> dict[str, Any]:
    """Words with a name where they say, the others in order; raises BadCommand where that does not fit."""
    properties = tool.parameters.get("properties", {})
    named, rest = _by_name(properties, list(words_of(line)))
    given = {**_in_order(tool, rest, taken=named), **named}
    values = {name: _value(properties[name], text) for name, text in given.items()}
    usage = tool_usage(tool)
    for name in tool.parameters.get("required", ()):
        if name not in values:
            raise BadCommand(_("%(name)s is missing.") % {"name": name}, usage=usage)
    for name, value in values.items():
        if not _fits(properties[name], value):
            words = {"name": name, "value": given[name][:80]}
            raise BadCommand(_("%(name)s cannot be “%(value)s”.") % words, usage=usage)
    return values


def _by_name(properties: Mapping[str, Any], words: Sequence[Word]) -> tuple[dict[str, str], list[Word]]:
    """An equals sign behind anything but the name of a parameter is just a character."""
    named = {word.name: word.text for word in words if word.name in properties}
    return named, [word for word in words if word.name not in properties]


def _in_order(tool: Tool, words: Sequence[Word], *, taken: Mapping[str, str]) -> dict[str, str]:
    free = free_text(tool)
    if words and free and free not in taken and not (words[0].is_quoted and not words[0].name):
        return {free: " ".join(word.raw for word in words)}
    texts = [word.raw if word.name else word.text for word in words]
    names = [name for name in tool.parameters.get("properties", {}) if name not in taken]
    if len(texts) > len(names):
        words_left = {"words": " ".join(texts[len(names) :])[:80]}
        raise BadCommand(_("There is nothing to do with “%(words)s”.") % words_left, usage=tool_usage(tool))
    return dict(zip(names, texts, strict=False))


def _value(schema: Mapping[str, Any], text: str) -> Any:
    """As the schema wants it; what cannot be made so stays a text, and does not fit."""
    kind, lowered = schema.get("type"), text.strip().casefold()
    if kind == "array":
        items = [item.strip() for item in re.split("[,，、]", text)]
        return [_value(schema.get("items", {}), item) for item in items if item]
    if "enum" in schema:
        return next((value for value in schema["enum"] if str(value).casefold() == lowered), text)
    if kind == "boolean" and lowered in (*YES, *NO):
        return lowered in YES
    if kind in ("integer", "number"):
        return _number(text, whole=kind == "integer")
    return text


def _number(text: str, *, whole: bool) -> Any:
    try:
        number = int(text) if whole else float(text)
    except ValueError:
        return text
    return number if abs(number) < BEYOND_NUMBERS else text


def _fits(schema: Mapping[str, Any], value: Any) -> bool:
    try:
        checked({"properties": {"value": schema}}, {"value": value})
    except BadArguments:
        return False
    return True


# Of the commands of the house.


def house_arguments(name: str, line: str) -> dict[str, Any]:
    if name == "context" and (folder := re.fullmatch(r"add\s+(\S.*)", line.strip(), re.IGNORECASE)):
        return {"folder": folder[1].strip("\"'")}
    line = " ".join(line.split())
    if name == "title" and line:
        return {"title": line[:TITLE_CHARS]}
    if name == "history" and (not line or _NUMBER.fullmatch(line)):
        return {"limit": max(1, min(int(line or 20), MOST_SHOWN))}
    if name == "rollback" and (not line or _NUMBER.fullmatch(line)):
        return {"turns": max(1, int(line or 1))}
    if name in ("rollback", "fork") and (entry := _ENTRY.fullmatch(line)):
        return {"seq": int(entry[1])}
    if name == "compress" and " " not in line:
        return {"model": line}
    if name in ("fork", "help") and not line:
        return {}
    problem = _("This does not fit.") if line else _("Something is missing.")
    raise BadCommand(problem, usage=house_usage(name))
