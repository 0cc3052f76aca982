"""Repair of a conversation for a vendor, by `history.context.repair` and its encoder."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from history.context import Context
from history.context.remarks import Remark, RemarkCode
from history.context.repair import with_opening
from history.context.values import ContextEntry, Role
from history.dialects import DIALECTS, CallOptions, Encoded, Loss
from history.entries import JsonDict, JsonObject, OtherPart, Part, ToolDefinition, ToolRequest
from history.linting.parse_input import MODEL
from history.linting.values import Repair
from history.linting.walker import TOOL_NAME
from history.text.lazy import gettext_noop as _

RENAMED = _("The tool %(given)s is now %(name)s. Other names are refused.")
OFFERED_ONCE = _("The tool %(name)s was offered twice. The second was left out.")
NAMELESS = _("A tool without a name was left out.")
MODEL_NAMED = _("A model is required. Replace %(name)s with yours.")
FIELD_LEFT_OUT = _("The field %(name)s was left out. The provider would refuse it.")

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
    repairs = [
        Repair(code=one.code.value, sentence=one.code.sentence, place=places(one.seq), values=one.values)
        for one in remarks
    ]
    names, forced = _rename_tools(context), options.tool_name
    repairs += [Repair(code="tool_renamed", sentence=RENAMED, values={"given": a, "name": b}) for a, b in names.items()]
    named = [tool for tool in context.tools if tool.name]
    if len(named) < len(context.tools):
        repairs.append(Repair(code="nameless_tool_left_out", sentence=NAMELESS))
    tools, repeated = _once(replace(tool, name=names.get(tool.name, tool.name)) for tool in named)
    repairs += [Repair(code="tool_offered_once", sentence=OFFERED_ONCE, values={"name": name}) for name in repeated]
    if not options.model:
        repairs.append(Repair(code="model_named", sentence=MODEL_NAMED, values={"name": MODEL}))
    entries = tuple(_renamed(entry, names) for entry in context.entries) if names else context.entries
    return RepairInput(
        context=replace(context, entries=entries, tools=tools),
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


def encode_for(dialect: str, repair: RepairInput) -> Encoded:
    return DIALECTS[dialect].encode(repair.context, repair.options)


def repair_of_loss(loss: Loss, places: Places) -> Repair:
    return Repair(code=loss.code.value, sentence=loss.code.sentence, place=places(loss.seq), values=loss.values)


# The names of tools.

_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")


def _rename_tools(context: Context) -> dict[str, str]:
    """For each name that a vendor would refuse, a unique one that all vendors accept."""
    names = [tool.name for tool in context.tools if tool.name]
    names += [call.name for entry in context.entries for call in entry.tool_requests]
    taken = {name for name in names if TOOL_NAME.fullmatch(name)}
    renamed: dict[str, str] = {}
    for name in names:
        if name not in taken and name not in renamed:
            renamed[name] = _unique_name(_REFUSED.sub("_", name)[:60] or "tool", taken)
            taken.add(renamed[name])
    return renamed


def _unique_name(wanted: str, taken: set[str]) -> str:
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted[:56]}_{number}"
    return name


def _renamed(entry: ContextEntry, names: Mapping[str, str]) -> ContextEntry:
    parts: Sequence[Part] = [
        replace(part, name=names.get(part.name, part.name)) if isinstance(part, ToolRequest) else part
        for part in entry.parts
    ]
    results = [replace(result, name=names.get(result.name, result.name)) for result in entry.results]
    return replace(entry, parts=tuple(parts), results=tuple(results))


def _once(tools: Iterable[ToolDefinition]) -> tuple[tuple[ToolDefinition, ...], list[str]]:
    entries: dict[str, ToolDefinition] = {}
    repeated = []
    for tool in tools:
        if tool.name in entries:
            repeated.append(tool.name)
        else:
            entries[tool.name] = tool
    return tuple(entries.values()), repeated


# Fields that only this vendor has.


def with_extra(body: JsonDict, extra: JsonObject) -> JsonDict:
    """The request with the other fields of its client."""
    merged = dict(body)
    for name, value in extra.items():
        if isinstance(value, Mapping) and isinstance(merged.get(name), dict):
            merged[name] = {**merged[name], **value}
        else:
            merged[name] = value
    return merged
