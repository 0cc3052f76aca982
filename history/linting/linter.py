"""Lint reports for a request in any dialect or a stored session."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from history.context.messages import masked_results, messages_of, pieces_of
from history.context.rendering import render_context
from history.context.values import ContextOptions, Role, Snapshot
from history.dialects import DIALECTS, CallOptions, DecodedRequest, DialectError, Encoded, Loss, LossCode, context_of
from history.entries import JsonDict, JsonObject, Media, Text, ToolRequest
from history.linting.anthropic_messages import MessagesWalk
from history.linting.gemini_generate import GenerateWalk
from history.linting.openai import ChatWalk, ResponsesWalk
from history.linting.order import check_order, check_tools
from history.linting.parse_input import FIELDS, MODEL, LintInput, NotAConversation
from history.linting.repairing import RepairInput, prepare, repair_of, with_extra
from history.linting.rules import LintFinding, LintReport, LintSeverity, Repair, Rule, Verdict
from history.linting.walker import LintWalk, Speaker, weight_of
from history.text.lazy import LazyText
from history.text.lazy import gettext_noop as _

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
    losses = [repair_of(loss, repair.places) for loss in (*decoded.losses, *_conversation_losses(encoded))]
    body, left_out = _add_fields(dialect, encoded.body, list(decoded.extra.items()), [MAX_CHECKS])
    words = _("The field %(name)s was left out. The provider would refuse it.")
    left_out_fields = [Repair(code="field_left_out", text=LazyText(words, name=n), place=n) for n in left_out]
    repairs = (*repair.repairs, *losses, *left_out_fields)
    return _verdict(dialect, _check_own_rules(walk), body, repairs, is_native=True)


def _judge_foreign(dialect: str, walk: LintWalk, repair: RepairInput) -> Verdict:
    """The verdict of another vendor: whether it takes the conversation, and what it cannot carry."""
    encoded = DIALECTS[dialect].encode(repair.context, repair.options)
    findings = [*check_order(walk.steps, dialect, is_native=False), *check_tools(walk.tools, dialect)]
    for loss in _conversation_losses(encoded):
        severity = LintSeverity.ODD if loss.code in HAS_EQUIVALENT else LintSeverity.UNPORTABLE
        rule = Rule(id=f"carrying/{loss.code.value.replace('_', '-')}", severity=severity, words=loss.code.sentence)
        findings.append(LintFinding(rule=rule, text=loss.text, place=repair.places(loss.seq)))
    return _verdict(dialect, findings, encoded.body, repair.repairs)


def _conversation_losses(encoded: Encoded) -> Iterator[Loss]:
    """Without the losses of results that a repair has made up: they belong to no entry."""
    return (loss for loss in encoded.losses if loss.seq or loss.code is not LossCode.STATUS_NOT_CARRIED)


def _add_fields(
    language: str, body: JsonDict, fields: list[tuple[str, object]], checks_left: list[int]
) -> tuple[JsonDict, list[str]]:
    """Add the fields that have no equivalent, or by halves those that the vendor takes.

    Returns the body and the names of the fields that are left out: refused, or not tested within the checks.
    """
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
    """Each finding once, the worst first."""
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
    """The steps of a stored session, before any repair."""
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
                walk.say(place, weight=weight_of(part.text))
            else:
                walk.say(place, weight=2 if isinstance(part, Media) else 0)
    for tool in snapshot.tools:
        walk.offer(tool.name, "tools")
    return walk
