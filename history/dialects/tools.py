"""Tool calls and tool definitions in all dialects: arguments, call ids, hosted tools and their substitutes.

A vendor runs its hosted tools itself. Some tools of OpenAI's dialects are run by the client: one that takes plain text
(``custom``), and those of a group (``namespace``). Other vendors get functions as substitutes for these, and calls of
the substitutes return to the client in the form of the original tools.
"""

import hashlib
from collections.abc import Container, Iterator
from dataclasses import dataclass

from history.dialects.json_access import compact, obj, objs, parse_json, string
from history.dialects.types import Tools, join_texts
from history.entries import JsonDict, JsonObject, ToolDefinition

INVALID_JSON = "INVALID_JSON"  # holds a call's arguments that are no JSON object, where a vendor requires an object
# Keys of `ToolDefinition.extra` for a hosted tool: the tool in its dialect, and the dialect.
HOSTED, HOSTED_BY = "hosted", "hosted_by"
INPUT = "input"  # a substitute takes plain text as this field
TEXT_SCHEMA = {"type": "object", "properties": {INPUT: {"type": "string"}}, "required": [INPUT]}


def parse_arguments(text: str) -> JsonDict | None:
    """The arguments as an object; None for anything else."""
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def wrap_arguments(text: str) -> JsonDict:
    """The arguments as an object; invalid ones become the text in an object."""
    arguments = parse_arguments(text)
    return {INVALID_JSON: text} if arguments is None else arguments


def arguments_text(arguments: object) -> str:
    """Arguments as JSON text; the inverse of `wrap_arguments`."""
    if isinstance(arguments, str):
        return arguments or "{}"
    wrapped = obj(arguments)
    if list(wrapped) == [INVALID_JSON] and isinstance(wrapped[INVALID_JSON], str):
        return str(wrapped[INVALID_JSON])
    return compact(arguments) if arguments else "{}"


def call_id_for(name: str, arguments: str, *, taken: Container[str], repeats: dict[str, int] | None = None) -> str:
    """An id for a call without one. It is the same in a reply and in all later requests with this call.

    `repeats` counts equal calls, so that a new one is not compared with all of them.
    """
    digest = hashlib.sha256(f"{name}\0{arguments}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if f"call_{digest}" not in taken:
        return f"call_{digest}"
    known = {} if repeats is None else repeats
    number = known.get(digest, 1) + 1
    while f"call_{digest}_{number}" in taken:
        number += 1
    known[digest] = number
    return f"call_{digest}_{number}"


def hosted_tool(name: str, tool: JsonObject, *, dialect: str) -> ToolDefinition:
    return ToolDefinition(name=name, extra={HOSTED: tool, HOSTED_BY: dialect})


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSubstitute:
    """A function for a tool of a client. `has_grammar`: OpenAI restricts the input of the tool to a grammar."""

    function: ToolDefinition
    namespace: str = ""
    takes_text: bool = False
    has_grammar: bool = False

    @property
    def name(self) -> str:
        return f"{self.namespace}.{self.function.name}" if self.namespace else self.function.name


def substitutes_for(tool: JsonObject, *, namespace: str = "", about: str = "") -> Iterator[ToolSubstitute]:
    """None for a tool that its vendor runs."""
    kind = tool.get("type")
    if kind == "namespace" and not namespace:
        group = string(tool.get("name"))
        for inner in objs(tool.get("tools")):
            about = f"{group}: {string(tool.get('description'))}"
            yield from substitutes_for(inner, namespace=group, about=about)
    elif kind == "custom" or (kind == "function" and namespace):
        takes_text, grammar, fields = kind == "custom", "", tool
        if takes_text:
            fields = obj(tool.get("custom")) or tool
            form = obj(fields.get("format"))
            form = obj(form.get("grammar")) or form
            if definition := string(form.get("definition")):
                grammar = f"The input follows this grammar ({string(form.get('syntax'))}):\n{definition}"
        function = ToolDefinition(
            name=string(fields.get("name")),
            description=join_texts([string(fields.get("description")), grammar, about]),
            parameters=TEXT_SCHEMA if takes_text else obj(tool.get("parameters")),
        )
        yield ToolSubstitute(function=function, namespace=namespace, takes_text=takes_text, has_grammar=bool(grammar))


def substitutes_by_name(tools: Tools) -> dict[str, ToolSubstitute]:
    """The substitutes of these tools. Names are unique, and the client's own functions come first."""
    own = {tool.name for tool in tools if HOSTED not in tool.extra}
    by_name: dict[str, ToolSubstitute] = {}
    for tool in tools:
        for substitute in substitutes_for(obj(tool.extra.get(HOSTED))):
            if substitute.function.name not in own:
                by_name.setdefault(substitute.function.name, substitute)
    return by_name


def text_tool_names(tools: Tools) -> frozenset[str]:
    return frozenset(name for name, substitute in substitutes_by_name(tools).items() if substitute.takes_text)


def input_of(arguments: str) -> str:
    """The plain text for a tool from the arguments of its substitute. An empty object is an empty text."""
    try:
        value = parse_json(arguments)
    except ValueError:
        return arguments
    if value == {}:
        return ""
    fields = obj(value)
    texts = [text for text in fields.values() if isinstance(text, str)]
    return string(fields.get(INPUT)) or (texts[0] if len(fields) == len(texts) == 1 else arguments)
