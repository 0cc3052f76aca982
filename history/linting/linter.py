"""Lint reports for a request in any dialect or a stored session."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count

from history.context.messages import masked_results, messages_of, pieces_of
from history.context.rendering import render_context
from history.context.repair import with_opening
from history.context.values import Context, ContextEntry, ContextOptions, Remark, RemarkCode, Role, Snapshot
from history.dialects import DIALECTS, CallOptions, DecodedRequest, DialectError, Loss, LossCode, context_of
from history.entries import JsonDict, JsonObject, Media, OtherPart, Part, Text, ToolDefinition, ToolRequest
from history.linting.anthropic_messages import MessagesWalk
from history.linting.gemini_generate import GenerateWalk
from history.linting.openai import ChatWalk, ResponsesWalk
from history.linting.parse_input import FIELDS, MODEL, LintInput, NotAConversation
from history.linting.rules import LintFinding, LintReport, LintSeverity, Repair, Rule, Verdict
from history.linting.walker import TOOL_NAME, LintWalk, Speaker, check_order, check_tools, weight_of
from history.text.lazy import LazyText, gettext_noop as _

WALKS = {walk.dialect: walk for walk in (ChatWalk, ResponsesWalk, MessagesWalk, GenerateWalk)}
NAMES = {
    "openai-chat": "OpenAI Chat",
    "openai-responses": "OpenAI Responses",
    "anthropic-messages": "Anthropic Messages",
    "gemini-generate": "Gemini",
}
SPEAKERS: dict[Role, Speaker] = {Role.MODEL_OUTPUT: "model", Role.SYSTEM: "system"}
# Dialects whose settings for thinking and for the form of an answer are fields that are passed on unchanged.
WITH_OWN_SETTINGS = ("anthropic-messages", "gemini-generate")
# Losses that another vendor has an equivalent for.
HAS_EQUIVALENT = frozenset({
    LossCode.SIGNATURE_REPLACED, LossCode.CALL_ID_CHANGED, LossCode.PARTS_REORDERED, LossCode.MEDIA_MOVED,
    LossCode.MEDIA_AS_TEXT, LossCode.ARGUMENTS_WRAPPED, LossCode.STATUS_NOT_CARRIED, LossCode.SYSTEM_AS_TEXT,
})  # fmt: skip
MAX_CHECKS = 64  # of a request to find the fields that it is refused for; each check walks through all of it
# The report shows no times, so that the same conversation always gives the same report.
_NO_TIME = datetime.fromtimestamp(0, UTC)
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
    merged = dict(body)
    for name, value in extra.items():
        is_nested = isinstance(value, Mapping) and isinstance(merged.get(name), dict)
        merged[name] = {**merged[name], **value} if is_nested else value
    return merged


def lint_request(request: LintInput) -> LintReport:
    try:  # first: this refuses what is nested too deeply to be walked
        decoded = DIALECTS[request.language].decode_request(request.body, at=_NO_TIME)
    except DialectError as error:
        raise NotAConversation(str(error)) from error
    walk = WALKS[request.language](request.body)
    field = FIELDS[request.language]

    def places(seq: int) -> str:
        return f"{field}[{decoded.places[seq - 1]}]" if 0 < seq <= len(decoded.places) else ""

    options = replace(decoded.options, media=decoded.blobs.__getitem__)
    repair = prepare(context_of(decoded), options, places=places)
    verdicts = [
        _judge_native(walk, decoded, repair) if dialect == request.language else _judge_foreign(dialect, walk, repair)
        for dialect in DIALECTS
    ]
    return LintReport(language=request.language, verdicts=tuple(verdicts))


def lint_session(snapshot: Snapshot, *, media: Callable[[str], bytes] | None = None) -> LintReport:
    """All of the session along one path, without limits."""
    walk = _walk_session(snapshot)
    context = render_context(snapshot, ContextOptions(max_turns=None, inject_notebook=False))
    repair = prepare(context, CallOptions(model=MODEL, media=media), places=lambda seq: f"#{seq}" if seq else "")
    return LintReport(language="", verdicts=tuple(_judge_foreign(dialect, walk, repair) for dialect in DIALECTS))


def is_taken(dialect: str, body: JsonObject) -> bool:
    """Whether the vendor would take this request of its own language."""
    findings = _check_own_rules(WALKS[dialect](body))
    return not any(finding.rule.severity is LintSeverity.REJECTED for finding in findings)


def _check_own_rules(walk: LintWalk) -> Iterator[LintFinding]:
    yield from walk.findings
    yield from check_order(walk.steps, walk.dialect, is_native=True)
    yield from check_tools(walk.tools, walk.dialect)


def _judge_native(walk: LintWalk, decoded: DecodedRequest, repair: RepairInput) -> Verdict:
    """The verdict of the vendor itself on its own language. Losses of the repair are listed with the repairs."""
    dialect, options = walk.dialect, replace(repair.options, form=None)
    if dialect in WITH_OWN_SETTINGS:
        options = replace(options, reasoning_effort="")
    encoded = DIALECTS[dialect].encode(repair.context, options)
    losses = [repair_of(loss, repair.places) for loss in (*decoded.losses, *_conversation_losses(encoded.losses))]
    body, left_out = _add_fields(dialect, encoded.body, list(decoded.extra.items()), [MAX_CHECKS])
    words = _("The field %(name)s was left out. The provider would refuse it.")
    left_out_fields = [Repair(code="field_left_out", text=LazyText(words, name=n), place=n) for n in left_out]
    repairs = (*repair.repairs, *losses, *left_out_fields)
    return _verdict(dialect, _check_own_rules(walk), body, repairs, is_native=True)


def _judge_foreign(dialect: str, walk: LintWalk, repair: RepairInput) -> Verdict:
    encoded = DIALECTS[dialect].encode(repair.context, repair.options)
    findings = [*check_order(walk.steps, dialect, is_native=False), *check_tools(walk.tools, dialect)]
    for loss in _conversation_losses(encoded.losses):
        severity = LintSeverity.ODD if loss.code in HAS_EQUIVALENT else LintSeverity.UNPORTABLE
        rule = Rule(id=f"carrying/{loss.code.value.replace('_', '-')}", severity=severity, words=loss.code.sentence)
        findings.append(LintFinding(rule=rule, text=loss.text, place=repair.places(loss.seq)))
    return _verdict(dialect, findings, encoded.body, repair.repairs)


def _conversation_losses(losses: Iterable[Loss]) -> Iterator[Loss]:
    """Without the losses of results that a repair has made up: they belong to no entry."""
    return (loss for loss in losses if loss.seq or loss.code is not LossCode.STATUS_NOT_CARRIED)


def _add_fields(
    language: str, body: JsonDict, fields: list[tuple[str, object]], checks_left: list[int]
) -> tuple[JsonDict, list[str]]:
    """Add the fields that the vendor takes, by halves. Returns the body and the names left out: refused, not tested."""
    if not fields:
        return body, []
    if checks_left[0] == 0:
        return body, [name for name, _value in fields]
    checks_left[0] -= 1
    more = with_extra(body, dict(fields))
    if is_taken(language, more):
        return more, []
    if len(fields) == 1:
        return body, [fields[0][0]]
    half = len(fields) // 2
    body, refused = _add_fields(language, body, fields[:half], checks_left)
    body, others = _add_fields(language, body, fields[half:], checks_left)
    return body, refused + others


def _verdict(
    dialect: str, findings: Iterable[LintFinding], body: JsonDict, repairs: Sequence[Repair], *, is_native: bool = False
) -> Verdict:
    ranks = list(LintSeverity)
    unique = {(finding.rule.id, finding.place, finding.text): finding for finding in findings}
    return Verdict(
        dialect=dialect,
        is_native=is_native,
        findings=tuple(sorted(unique.values(), key=lambda finding: ranks.index(finding.rule.severity))),
        repaired=body if body.get(FIELDS[dialect]) else None,
        repairs=tuple(repairs),
    )


def _walk_session(snapshot: Snapshot) -> LintWalk:
    walk = LintWalk()
    masked = masked_results(snapshot.nodes)
    for entry in messages_of(pieces_of(snapshot), masked, session_id=snapshot.session_id, remarks=[]):
        walk.message += 1
        walk.speaker = SPEAKERS.get(entry.role, "user")
        place = f"#{entry.seq}"
        for result in entry.results:
            walk.result(place, call_id=result.call_id, name=result.name)
        for part in entry.parts:
            if isinstance(part, ToolRequest) and walk.speaker == "model":
                walk.call(place, call_id=part.call_id, name=part.name)
            elif isinstance(part, Text):
                walk.content(place, weight=weight_of(part.text))
            else:
                walk.content(place, weight=2 if isinstance(part, Media) else 0)
    for tool in snapshot.tools:
        walk.offer(tool.name, "tools")
    return walk
