"""Slash commands: lines of the composer that need no model, only parsed here. docs/agents.md has their rules."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

from django.utils.translation import gettext as _, gettext_lazy
from django_stubs_ext import StrOrPromise

from history.entries import EMPTY, JsonObject, ToolRequest, thaw
from relay.tools.base import BadArguments, Tool, Toolbox, check_arguments

MOST_SHOWN = 500
TITLE_CHARS = 200
BEYOND_NUMBERS = 10**18
YES = ("true", "yes", "on", "1")
NO = ("false", "no", "off", "0")
_CLOSING = {'"': '"', "'": "'", "“": "”", "”": "”", "‘": "’", "’": "’", "「": "」", "『": "』", "«": "»", "＂": "＂"}
_NAME = re.compile(r"([A-Za-z_]\w*)[=＝]")
_WORD = re.compile(r"\S+")
_SPACE = re.compile(r"\s*")
_NUMBER = re.compile(r"[0-9]{1,15}")
_ENTRY = re.compile(r"[#＃]([0-9]{1,15})")
# The slash of a Chinese keyboard is as good as any.
_COMMAND = re.compile(r"\s*[/／]([A-Za-z][A-Za-z0-9_-]*)(?:\s+(.*))?", re.DOTALL)
_TWO_SLASHES = re.compile(r"\s*(?://|／／)(?=[^\s/／])")
_SLIP = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class Command:
    """A parsed command. `is_tool`: the name is a tool's, and the arguments fit its schema."""

    name: str
    arguments: JsonObject = field(default_factory=lambda: EMPTY)
    is_tool: bool = False

    def as_request(self, call_id: str) -> ToolRequest:
        """As a model would request it."""
        arguments = json.dumps(thaw(self.arguments), ensure_ascii=False)
        return ToolRequest(call_id=call_id, name=self.name, arguments=arguments)


class BadCommand(ValueError):
    """It begins like a command but is not valid. The text says why, and `usage` how to write it."""

    def __init__(self, problem: str, *, usage: str = "") -> None:
        super().__init__(problem + " " + _("Usage: %(usage)s") % {"usage": usage} if usage else problem)
        self.problem, self.usage = problem, usage


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    name: str
    usage: str
    description: str


OWN: dict[str, tuple[StrOrPromise, StrOrPromise]] = {
    "help": ("", gettext_lazy("Shows these commands")),
    "history": ("[20]", gettext_lazy("Shows the newest messages")),
    "rollback": ("[1|#12]", gettext_lazy("Goes back a number of turns, or to an entry; nothing is lost")),
    "fork": ("[#12]", gettext_lazy("Continues in a new session, from here or from an entry")),
    "context": (gettext_lazy("add folder"), gettext_lazy("Shows the agent what is in a folder")),
    "compress": (gettext_lazy("[model]"), gettext_lazy("Summarises older messages for the model; nothing is lost")),
    "title": (gettext_lazy("words…"), gettext_lazy("Gives this session a title")),
}


def suggestions(tools: Toolbox) -> list[Suggestion]:
    """All commands, our own first."""
    own = [(name, own_usage(name), description) for name, (_usage, description) in OWN.items()]
    others = [(tool.name, tool_usage(tool), tool.summary) for tool in usable(tools).values()]
    return [Suggestion(name=name, usage=usage, description=str(about)) for name, usage, about in own + others]


def usable(tools: Toolbox) -> dict[str, Tool]:
    """Tools that a person can use: to finish a task, to ask the person or to call an agent is for agents alone."""
    meant = (tool for tool in tools.values() if not tool.directive and not tool.is_for_agents)
    return {tool.name: tool for tool in meant if tool.name not in OWN}


def own_usage(name: str) -> str:
    return f"/{name} {OWN[name][0]}".strip()


def tool_usage(tool: Tool) -> str:
    return " ".join([f"/{tool.name}", *_parameters(tool)])


def _parameters(tool: Tool) -> Iterator[str]:
    free = free_text(tool)
    required = tool.parameters.get("required", ())
    for name, schema in tool.parameters.get("properties", {}).items():
        if name == free:
            shown = f"{name}…"
        elif free:
            shown = f"{name}={_values(schema) or schema.get('default') or '…'}"
        else:
            shown = _values(schema) or name
        yield shown if name in required else f"[{shown}]"


def _values(schema: JsonObject) -> str:
    if schema.get("type") == "boolean":
        return "yes|no"
    return "|".join(map(str, schema.get("enum", ())))


def free_text(tool: Tool) -> str:
    """The parameter that takes all words without a name: the first, if it takes any text and no other is required."""
    properties = tool.parameters.get("properties", {})
    first = next(iter(properties), "")
    is_free = first and properties[first].get("type") == "string" and "enum" not in properties[first]
    return first if is_free and set(tool.parameters.get("required", ())) <= {first} else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """`text` without its quotes; `raw` as it was typed. `name` is what stood before an equals sign, if anything."""

    text: str
    raw: str
    name: str = ""
    is_quoted: bool = False


def words_of(line: str) -> Iterator[Word]:
    place = _end(_SPACE, line, 0)
    unclosed: set[str] = set()
    while place < len(line):
        word = _word_at(line, place, unclosed)
        yield word
        place = _end(_SPACE, line, place + len(word.raw))


def _word_at(line: str, place: int, unclosed: set[str]) -> Word:
    named = _NAME.match(line, place)
    start = named.end() if named else place
    name = named[1] if named else ""
    if (end := _end_of_quoted(line, start, unclosed)) is not None:
        text = line[start + 1 : end - 1].replace('\\"', '"')
        return Word(text=text, raw=line[place:end], name=name, is_quoted=True)
    end = _end(_WORD, line, place)
    return Word(text=line[start:end], raw=line[place:end], name=name)


def _end_of_quoted(line: str, start: int, unclosed: set[str]) -> int | None:
    """Where a quoted stretch that begins here ends, if one does. `unclosed` keeps a line from being searched again."""
    closing = _CLOSING.get(line[start : start + 1])
    if closing is None or closing in unclosed:
        return None
    end = line.find(closing, start + 1)
    while end >= 0:
        if line[end - 1] != "\\" and (end + 1 == len(line) or line[end + 1].isspace()):
            return end + 1
        end = line.find(closing, end + 1)
    unclosed.add(closing)
    return None


def _end(pattern: re.Pattern[str], line: str, place: int) -> int:
    match = pattern.match(line, place)
    return match.end() if match else place


def tool_arguments(tool: Tool, line: str) -> dict[str, Any]:
    """Words with a name where they say, the others in order; raises BadCommand where that does not fit."""
    properties = tool.parameters.get("properties", {})
    words = list(words_of(line))
    # An equals sign behind anything but the name of a parameter is just a character.
    named = {word.name: word.text for word in words if word.name in properties}
    rest = [word for word in words if word.name not in properties]
    texts = {**_in_order(tool, rest, taken=named), **named}
    values = {name: _value(properties[name], text) for name, text in texts.items()}
    usage = tool_usage(tool)
    for name in tool.parameters.get("required", ()):
        if name not in values:
            raise BadCommand(_("%(name)s is missing.") % {"name": name}, usage=usage)
    for name, value in values.items():
        if not _fits(properties[name], value):
            shown = {"name": name, "value": texts[name][:80]}
            raise BadCommand(_("%(name)s cannot be “%(value)s”.") % shown, usage=usage)
    return values


def _in_order(tool: Tool, words: Sequence[Word], *, taken: Mapping[str, str]) -> dict[str, str]:
    free = free_text(tool)
    if words and free and free not in taken and not (words[0].is_quoted and not words[0].name):
        return {free: " ".join(word.raw for word in words)}
    texts = [word.raw if word.name else word.text for word in words]
    names = [name for name in tool.parameters.get("properties", {}) if name not in taken]
    if len(texts) > len(names):
        words_left = {"words": " ".join(texts[len(names) :])[:80]}
        raise BadCommand(_("“%(words)s” is not expected here.") % words_left, usage=tool_usage(tool))
    return dict(zip(names, texts, strict=False))


def _value(schema: JsonObject, text: str) -> object:
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
        try:
            number = int(text) if kind == "integer" else float(text)
        except ValueError:
            return text
        return number if abs(number) < BEYOND_NUMBERS else text
    return text


def _fits(schema: JsonObject, value: object) -> bool:
    try:
        check_arguments({"properties": {"value": schema}}, {"value": value})
    except BadArguments:
        return False
    return True


def own_arguments(name: str, line: str) -> dict[str, Any]:
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
    problem = _("This argument is not valid.") if line else _("An argument is missing.")
    raise BadCommand(problem, usage=own_usage(name))


def parse(text: str, tools: Toolbox) -> Command | None:
    """The command that this text is, or None: then it is a message. Raises BadCommand where it is one that is wrong."""
    match = _COMMAND.fullmatch(text)
    if match is None:
        return None
    there = usable(tools)
    name = match[1] if match[1] in there else match[1].lower()
    line = match[2] or ""
    if name in OWN:
        return Command(name=name, arguments=own_arguments(name, line))
    if name in there:
        return Command(name=name, arguments=tool_arguments(there[name], line), is_tool=True)
    if meant := get_close_matches(name, [*OWN, *there], n=1, cutoff=_SLIP):
        words = {"name": match[1], "meant": meant[0]}
        raise BadCommand(
            _("There is no command /%(name)s. Did you mean /%(meant)s? Begin with // to send it as text.") % words
        )
    return None


def unescape_slashes(text: str) -> str:
    """What is sent of a text that is no command: `//` before a word is one slash, but `// so` is a remark in code."""
    return _TWO_SLASHES.sub("/", text, count=1) if _TWO_SLASHES.match(text) else text


def help_text(tools: Toolbox) -> str:
    lines = [f"- `{one.usage}` {one.description}" for one in suggestions(tools)]
    return "\n".join([*lines, "", _("Begin with // to send a text that starts with a slash: //text.")])
