"""A stored session, as each vendor would see it: places are entries, and nothing is foreign to the record."""

from __future__ import annotations

import pytest

from history.entries import Entry, ModelInput, ModelOutput, Node, Reasoning, Text, ToolRequest, ToolResult, ToolResults
from history.linting import LintReport, lint_session
from tests.history.context.strategies import AT, snapshot_of

pytestmark = pytest.mark.no_database

HELLO = ModelInput(at=AT, parts=(Text(text="Hi"),))
ASKS = ModelOutput(at=AT, parts=(ToolRequest(call_id="a", name="read"),))
FOUND = ToolResults(at=AT, results=(ToolResult(call_id="a", name="read", parts=(Text(text="42"),)),))


def report_on(*entries: Entry) -> LintReport:
    nodes = [Node(seq=seq, parent=seq - 1, entry=entry) for seq, entry in enumerate(entries, 1)]
    return lint_session(snapshot_of(tuple(nodes)))


def found(report: LintReport, dialect: str) -> list[tuple[str, str]]:
    verdict = next(verdict for verdict in report.verdicts if verdict.dialect == dialect)
    return [(finding.rule.id, finding.place) for finding in verdict.findings]


def test_a_call_that_was_never_answered_is_found_at_its_entry() -> None:
    report = report_on(HELLO, ASKS, HELLO)
    assert report.language == ""
    assert found(report, "anthropic-messages") == [("anthropic-messages/no-answer", "#2")]
    assert [verdict.is_rejected for verdict in report.verdicts] == [True] * 4
    assert next((repair.code, repair.place) for repair in report.verdicts[0].repairs) == ("result_supplied", "#2")


def test_results_after_a_later_question_are_late_for_those_who_mind() -> None:
    report = report_on(HELLO, ASKS, HELLO, FOUND)
    assert found(report, "openai-chat") == [("openai-chat/late-answer", "#4")]
    assert found(report, "openai-responses") == [("openai-responses/late-answer", "#4")]
    assert ("carrying/signature-replaced", "#2") in found(report, "gemini-generate")


def test_reasoning_goes_home_and_nowhere_else() -> None:
    thought = Reasoning(text="Hm.", signature="c2lnbmVk", provider="anthropic")
    report = report_on(HELLO, ModelOutput(at=AT, parts=(thought, Text(text="Yes."))), HELLO)
    assert found(report, "anthropic-messages") == []
    assert found(report, "openai-responses") == [("carrying/reasoning-foreign", "#2")]
    assert found(report, "openai-chat") == [("carrying/reasoning-not-carried", "#2")]
