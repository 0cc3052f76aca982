"""Repair of a conversation for a vendor, by `history.context.repair` and its encoder."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from history.context import Context
from history.context.entries import ContextEntry, Role
from history.context.repair import SENTENCES as OF_REPAIRS
from history.context.repair import Code, Remark, with_opening
from history.dialects import DIALECTS, CallOptions, Encoded, Loss
from history.dialects.types import SENTENCES as OF_LOSSES
from history.entries import OtherPart, Part, ToolDefinition, ToolRequest
from history.linting.parse_input import MODEL
from history.linting.values import Repair
from history.linting.walker import TOOL_NAME
from history.text.lazy import gettext_noop as _

RENAMED = _("The tool %(given)s became %(name)s: other names are refused.")
OFFERED_ONCE = _("The tool %(name)s was offered twice; the second was left out.")
NAMELESS = _("A tool without a name was left out.")
MODEL_NAMED = _("A model must be named: put yours in the place of %(name)s.")
FIELD_LEFT_OUT = _("The field %(name)s was left out: with it the request would be refused.")

Places = Callable[[int], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairInput:
    """What is to be repaired: a context whose calls are paired, how to call with it, and where its entries stood."""

    context: Context
    options: CallOptions
    places: Places
    repairs: tuple[Repair, ...] = ()


def prepare(context: Context, options: CallOptions, *, places: Places) -> RepairInput:
    """What must be done for any vendor: the repairs of the record, names that all take, a model."""
    remarks = [*context.report.remarks]
    context = replace(context, entries=with_opening(_that_can_be_said(context, remarks), remarks=remarks))
    repairs = [of_remark(remark, places) for remark in remarks]
    names, forced = _new_names(context), options.tool_name
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


def _that_can_be_said(context: Context, remarks: list[Remark]) -> list[ContextEntry]:
    """Drop inputs that no encoder can write: they would decide which role begins without being sent."""
    said = []
    for entry in context.entries:
        if entry.role is Role.MODEL_INPUT and all(isinstance(part, OtherPart) for part in entry.parts):
            remarks.append(Remark(code=Code.EMPTY_MESSAGE_LEFT_OUT, seq=entry.seq))
        else:
            said.append(entry)
    return said


def written_for(dialect: str, known: RepairInput) -> Encoded:
    return DIALECTS[dialect].encode(known.context, known.options)


def of_remark(remark: Remark, places: Places) -> Repair:
    sentence = OF_REPAIRS[remark.code]
    return Repair(code=remark.code.value, sentence=sentence, place=places(remark.seq), values=remark.values)


def of_loss(loss: Loss, places: Places) -> Repair:
    return Repair(code=loss.code.value, sentence=OF_LOSSES[loss.code], place=places(loss.seq), values=loss.values)


# The names of tools.

_REFUSED = re.compile(r"[^a-zA-Z0-9_-]")


def _new_names(context: Context) -> dict[str, str]:
    """For each name that a vendor would refuse, a unique one that all vendors accept."""
    named = [tool.name for tool in context.tools if tool.name]
    named += [call.name for entry in context.entries for call in entry.tool_requests]
    taken = {name for name in named if TOOL_NAME.fullmatch(name)}
    fresh: dict[str, str] = {}
    for name in named:
        if name not in taken and name not in fresh:
            fresh[name] = _free(_REFUSED.sub("_", name)[:60] or "tool", taken)
            taken.add(fresh[name])
    return fresh


def _free(wanted: str, taken: set[str]) -> str:
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
    kept: dict[str, ToolDefinition] = {}
    repeated = []
    for tool in tools:
        if tool.name in kept:
            repeated.append(tool.name)
        else:
            kept[tool.name] = tool
    return tuple(kept.values()), repeated


# Fields that only this vendor has.


def with_extra(body: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """The request with what its client asked for besides, in its own words."""
    merged = dict(body)
    for name, value in extra.items():
        if isinstance(value, Mapping) and isinstance(merged.get(name), dict):
            merged[name] = {**merged[name], **value}
        else:
            merged[name] = value
    return merged
