"""Whether a text is a command, and which."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches

from django.utils.translation import gettext as _

from relay.commands.arguments import house_arguments, tool_arguments
from relay.commands.usage import HOUSE, BadCommand, Command, suggestions, usable
from relay.tools.base import Tool

# The slash of a Chinese keyboard is as good as any.
_COMMAND = re.compile(r"\s*[/／]([A-Za-z][A-Za-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)
_TWO_SLASHES = re.compile(r"\s*(?://|／／)(?=[^\s/／])")
_SLIP = 0.8


def parse(text: str, tools: Iterable[Tool]) -> Command | None:
    """The command that this text is, or None: then it is a message. Raises BadCommand where it is one that is wrong."""
    match = _COMMAND.fullmatch(text)
    if match is None:
        return None
    there = usable(tools)
    name = match[1] if match[1] in there else match[1].lower()
    line = match[2] or ""
    if name in HOUSE:
        return Command(name=name, arguments=house_arguments(name, line))
    if name in there:
        return Command(name=name, arguments=tool_arguments(there[name], line), is_tool=True)
    if meant := get_close_matches(name, [*HOUSE, *there], n=1, cutoff=_SLIP):
        words = {"name": match[1], "meant": meant[0]}
        raise BadCommand(
            _("There is no command /%(name)s. Did you mean /%(meant)s? To send it as it is, begin with //.") % words
        )
    return None


def spoken(text: str) -> str:
    """What is sent of a text that is no command: `//` before a word is one slash, but `// so` is a remark in code."""
    return _TWO_SLASHES.sub("/", text, count=1) if _TWO_SLASHES.match(text) else text


def help_text(tools: Iterable[Tool]) -> str:
    """All commands as a list, in Markdown."""
    lines = [f"- `{one.usage}` {one.description}" for one in suggestions(tools)]
    return "\n".join([*lines, "", _("Two slashes send a text that begins with one: //text.")])
