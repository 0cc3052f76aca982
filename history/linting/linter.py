"""Lint reports for a request in any dialect or a stored session."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from history.context import ContextOptions, Snapshot, render_context
from history.dialects import DIALECTS, CallOptions, DecodedRequest, DialectError, Encoded, Loss, LossCode, context_of
from history.linting import anthropic_messages, gemini_generate, openai_chat, openai_responses
from history.linting.order import check_order, check_tools
from history.linting.parse_input import FIELDS, MODEL, LintInput, NotAConversation
from history.linting.repairing import FIELD_LEFT_OUT, RepairInput, of_loss, prepare, with_extra, written_for
from history.linting.stored import walk_of
from history.linting.values import LintFinding, LintReport, LintSeverity, Repair, Rule, Verdict
from history.linting.walker import LintWalk

WALKS: dict[str, Callable[[Mapping[str, Any]], LintWalk]] = {
    "openai-chat": openai_chat.walk,
    "openai-responses": openai_responses.walk,
    "anthropic-messages": anthropic_messages.walk,
    "gemini-generate": gemini_generate.walk,
}
NAMES = {
    "openai-chat": "OpenAI Chat",
    "openai-responses": "OpenAI Responses",
    "anthropic-messages": "Anthropic Messages",
    "gemini-generate": "Gemini",
}
# How much to think, and everywhere what form an answer has, is said in fields that we hand on as they came.
SAY_IT_THEMSELVES = ("anthropic-messages", "gemini-generate")
# What is not lost on the way to another vendor, but told there in another way.
SAID_DIFFERENTLY = frozenset(
    {
        LossCode.SIGNATURE_REPLACED,
        LossCode.CALL_ID_CHANGED,
        LossCode.PARTS_REORDERED,
        LossCode.MEDIA_MOVED,
        LossCode.MEDIA_AS_TEXT,
        LossCode.ARGUMENTS_WRAPPED,
        LossCode.STATUS_NOT_CARRIED,
        LossCode.SYSTEM_AS_TEXT,
    }
)
# Nothing that is shown depends on it, so that the same conversation always gives the same report.
_NO_TIME = datetime.fromtimestamp(0, UTC)


def lint_request(given: LintInput) -> LintReport:
    decoded = _decoded(given)  # first: it refuses what is nested too deeply to be walked
    walk = WALKS[given.language](given.body)
    field = FIELDS[given.language]

    def places(seq: int) -> str:
        return f"{field}[{decoded.places[seq - 1]}]" if 0 < seq <= len(decoded.places) else ""

    options = replace(decoded.options, media=decoded.blobs.__getitem__)
    known = prepare(context_of(decoded), options, places=places)
    verdicts = [
        _native(given, walk, decoded, known) if dialect == given.language else _foreign(dialect, walk, known)
        for dialect in DIALECTS
    ]
    return LintReport(language=given.language, verdicts=tuple(verdicts))


def lint_session(snapshot: Snapshot, *, media: Callable[[str], bytes] | None = None) -> LintReport:
    """All of the session along one path, without limits."""
    walk = walk_of(snapshot)
    without_limits = ContextOptions(max_turns=None, inject_notebook=False)
    context = render_context(snapshot, without_limits)
    known = prepare(context, CallOptions(model=MODEL, media=media), places=lambda seq: f"#{seq}" if seq else "")
    return LintReport(language="", verdicts=tuple(_foreign(dialect, walk, known) for dialect in DIALECTS))


def is_taken(dialect: str, body: Mapping[str, Any]) -> bool:
    """Whether the vendor would take this request of its own language."""
    return not any(finding.rule.severity is LintSeverity.REJECTED for finding in _own_rules(WALKS[dialect](body)))


def _decoded(given: LintInput) -> DecodedRequest:
    try:
        return DIALECTS[given.language].decode_request(given.body, at=_NO_TIME)
    except DialectError as error:
        raise NotAConversation(str(error)) from error


def _own_rules(walk: LintWalk) -> Iterator[LintFinding]:
    yield from walk.findings
    yield from check_order(walk.steps, walk.dialect, is_native=True)
    yield from check_tools(walk.tools, walk.dialect)


def _native(given: LintInput, walk: LintWalk, decoded: DecodedRequest, known: RepairInput) -> Verdict:
    """In its own language: what the vendor itself would say. What gets lost in a repair is told with the repairs."""
    known = replace(known, options=replace(known.options, form=None))
    if given.language in SAY_IT_THEMSELVES:
        known = replace(known, options=replace(known.options, reasoning_effort=""))
    encoded = written_for(given.language, known)
    lost = [of_loss(loss, known.places) for loss in (*decoded.losses, *_of_the_conversation(encoded))]
    body, left_out = _whole(given, encoded, decoded.extra)
    return Verdict(
        dialect=given.language,
        is_native=True,
        findings=tuple(_in_order(_own_rules(walk))),
        repaired=_if_anything(given.language, body),
        repairs=(*known.repairs, *lost, *left_out),
    )


def _foreign(dialect: str, walk: LintWalk, known: RepairInput) -> Verdict:
    """In another language: whether it could be sent there as it stands, and what that vendor cannot carry."""
    encoded = written_for(dialect, known)
    findings = [
        *check_order(walk.steps, dialect, is_native=False),
        *check_tools(walk.tools, dialect),
        *_losses(encoded, known),
    ]
    return Verdict(
        dialect=dialect,
        is_native=False,
        findings=tuple(_in_order(findings)),
        repaired=_if_anything(dialect, encoded.body),
        repairs=known.repairs,
    )


def _losses(encoded: Encoded, known: RepairInput) -> Iterator[LintFinding]:
    for loss in _of_the_conversation(encoded):
        told = of_loss(loss, known.places)
        name = loss.code.value.replace("_", "-")
        severity = LintSeverity.ODD if loss.code in SAID_DIFFERENTLY else LintSeverity.UNPORTABLE
        rule = Rule(id=f"carrying/{name}", severity=severity, words=told.sentence)
        yield LintFinding(rule=rule, place=told.place, about=told.values)


def _of_the_conversation(encoded: Encoded) -> Iterator[Loss]:
    """Without what concerns results that a repair has made up: they stand in no entry."""
    return (loss for loss in encoded.losses if loss.seq or loss.code is not LossCode.STATUS_NOT_CARRIED)


def _whole(given: LintInput, encoded: Encoded, extra: Mapping[str, Any]) -> tuple[dict[str, Any], list[Repair]]:
    """With the fields that we have no word for, unless the vendor would refuse the request for them."""
    body, refused = _with_fields(given.language, encoded.body, list(extra.items()), [CHECKS])
    left_out = [
        Repair(code="field_left_out", sentence=FIELD_LEFT_OUT, place=name, values={"name": name}) for name in refused
    ]
    return body, left_out


CHECKS = 64
"""How often a request is judged to find the fields that it is refused for: each time all of it is walked through."""


def _with_fields(
    language: str, body: dict[str, Any], fields: list[tuple[str, Any]], left: list[int]
) -> tuple[dict[str, Any], list[str]]:
    """All of the fields, or by halves those that are taken. What is not found out within the checks is left out."""
    if not fields:
        return body, []
    if left[0] == 0:
        return body, [name for name, _value in fields]
    left[0] -= 1
    more = with_extra(body, dict(fields))
    if is_taken(language, more):
        return more, []
    if len(fields) == 1:
        return body, [fields[0][0]]
    half = len(fields) // 2
    body, refused = _with_fields(language, body, fields[:half], left)
    body, others = _with_fields(language, body, fields[half:], left)
    return body, refused + others


def _if_anything(dialect: str, body: dict[str, Any]) -> dict[str, Any] | None:
    return body if body.get(FIELDS[dialect]) else None


def _in_order(findings: Iterator[LintFinding] | list[LintFinding]) -> list[LintFinding]:
    """The worst first, otherwise in the order in which they were found; each once."""
    ranks = list(LintSeverity)
    told = {(finding.rule.id, finding.place, finding.text): finding for finding in findings}
    return sorted(told.values(), key=lambda finding: ranks.index(finding.rule.severity))
