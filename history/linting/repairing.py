"""Repair of a conversation for a vendor, by `history.context.repair` and its encoder."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import chain, count

from history.context.repair import with_opening
from history.context.values import Context, ContextEntry, Remark, RemarkCode, Role
from history.dialects import CallOptions
from history.entries import JsonDict, JsonObject, OtherPart, Part, ToolDefinition, ToolRequest
from history.linting.parse_input import MODEL
from history.linting.rules import Repair
from history.linting.walker import TOOL_NAME
from history.text.lazy import LazyText
from history.text.lazy import gettext_noop as _

RENAMED = _("The tool %(given)s is now %(name)s. Other names are refused.")
OFFERED_ONCE = _("The tool %(name)s was offered twice. The second was left out.")
_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")  # characters in the name of a tool

Places = Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairInput:
    """The context to repair, with paired calls, the options of the call, and the places of its entries."""

    context: Context
    options: CallOptions
    places: Places
    repairs: tuple[Repair, ...] = ()


def prepare(context: Context, options: CallOptions, *, places: Places) -> RepairInput:
    """Repair what any vendor needs: the repairs of the context, tool names that all take, a model."""
    remarks = [*context.report.remarks]
    context = replace(context, entries=with_opening(_without_empty_inputs(context, remarks), remarks=remarks))
    repairs = [repair_of(remark, places) for remark in remarks]
    names, forced = _rename_tools(context), options.tool_name
    repairs += [Repair(code="tool_renamed", text=LazyText(RENAMED, given=a, name=b)) for a, b in names.items()]
    named = [tool for tool in context.tools if tool.name]
    if len(named) < len(context.tools):
        repairs.append(Repair(code="nameless_tool_left_out", text=LazyText(_("A tool without a name was left out."))))
    tools: dict[str, ToolDefinition] = {}
    for tool in named:
        name = names.get(tool.name, tool.name)
        if name in tools:
            repairs.append(Repair(code="tool_offered_once", text=LazyText(OFFERED_ONCE, name=name)))
        else:
            tools[name] = replace(tool, name=name)
    if not options.model:
        text = LazyText(_("A model is required. Replace %(name)s with yours."), name=MODEL)
        repairs.append(Repair(code="model_named", text=text))
    entries = tuple(_renamed(entry, names) for entry in context.entries) if names else context.entries
    return RepairInput(
        context=replace(context, entries=entries, tools=tuple(tools.values())),
        options=replace(options, model=options.model or MODEL, tool_name=names.get(forced, forced) if forced else ""),
        places=places,
        repairs=tuple(repairs),
    )


def _without_empty_inputs(context: Context, remarks: list[Remark]) -> list[ContextEntry]:
    """Drop inputs that no encoder can write: they would decide which role begins although they are not sent."""
    entries = []
    for entry in context.entries:
        if entry.role is Role.MODEL_INPUT and all(isinstance(part, OtherPart) for part in entry.parts):
            remarks.append(Remark(code=RemarkCode.EMPTY_MESSAGE_LEFT_OUT, seq=entry.seq))
        else:
            entries.append(entry)
    return entries


def repair_of(one: Remark, places: Places) -> Repair:
    return Repair(code=one.code.value, text=one.text, place=places(one.seq))


def _rename_tools(context: Context) -> dict[str, str]:
    """For each name that a vendor would refuse, a unique one that all vendors accept."""
    names = [tool.name for tool in context.tools if tool.name]
    names += [call.name for entry in context.entries for call in entry.tool_requests]
    taken = {name for name in names if TOOL_NAME.fullmatch(name)}
    renamed: dict[str, str] = {}
    for name in names:
        if name not in taken and name not in renamed:
            wanted = _REFUSED.sub("_", name)[:60] or "tool"
            numbered = (f"{wanted[:56]}_{number}" for number in count(2))
            renamed[name] = next(unique for unique in chain([wanted], numbered) if unique not in taken)
            taken.add(renamed[name])
    return renamed


def _renamed(entry: ContextEntry, names: Mapping[str, str]) -> ContextEntry:
    def rename(part: Part) -> Part:
        return replace(part, name=names.get(part.name, part.name)) if isinstance(part, ToolRequest) else part

    results = tuple(replace(result, name=names.get(result.name, result.name)) for result in entry.results)
    return replace(entry, parts=tuple(map(rename, entry.parts)), results=results)


def with_extra(body: JsonDict, extra: JsonObject) -> JsonDict:
    """The request with the other fields of its client."""
    merged = dict(body)
    for name, value in extra.items():
        is_nested = isinstance(value, Mapping) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if is_nested else value
    return merged
