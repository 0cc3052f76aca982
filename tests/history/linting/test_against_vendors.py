"""The linter and the played vendors know the rules apart from each other: here one is checked against the other."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from history.context.messages import to_context
from history.context.values import Context, Role
from history.dialects import DIALECTS
from history.entries import Node
from history.linting import LintInput, LintReport, Verdict, is_taken, lint_request, lint_session
from tests.factories import example_count
from tests.history.context.strategies import paths, snapshot_of
from tests.history.linting.requests import BROKEN, SIGNATURE
from tests.vendors.rules import problem_with
from tests.vendors.test_vendors import BAD, GOOD, HEADERS

pytestmark = pytest.mark.no_database

MANY = settings(max_examples=example_count(120), deadline=None)
# Whether a signature is genuine only the vendor knows.
UNKNOWABLE = {"a foreign signature", "a forged signature"}
broken = st.sampled_from(sorted(BROKEN)).flatmap(lambda name: st.tuples(st.just(name), BROKEN[name]))


def judged(dialect: str, body: Any) -> str | None:
    return problem_with(dialect, body, HEADERS, {SIGNATURE, "c2lnbmVk"})


def report_on(language: str, body: dict[str, Any]) -> LintReport:
    return lint_request(LintInput(body=body, language=language))


def doubts(verdict: Verdict) -> list[str]:
    """What it found besides the cost of carrying it over."""
    return [one.rule.id for one in verdict.findings if not one.rule.id.startswith("carrying/")]


def as_it_stands(language: str, body: dict[str, Any], dialect: str) -> dict[str, Any]:
    """The conversation in another vendor's language, with nothing repaired."""
    request = DIALECTS[language].decode_request(body)
    entries = [to_context(entry, seq=place) for place, entry in enumerate(request.entries, 1)]
    said = tuple(entry for entry in entries if entry.role is not Role.SYSTEM or entry.content.strip())
    context = Context(entries=said, system=request.system, tools=request.tools)
    encoded = DIALECTS[dialect].encode(context, request.options)
    return dict(json.loads(json.dumps({**encoded.body, "model": "m"})))


@pytest.mark.parametrize("language", GOOD)
def test_what_the_vendor_takes_is_not_called_rejected(language: str) -> None:
    for body in GOOD[language]:
        native = next(verdict for verdict in report_on(language, body).verdicts if verdict.is_native)
        assert not native.is_rejected, body


@pytest.mark.parametrize(("language", "case"), [(name, case) for name, cases in BAD.items() for case in cases])
def test_what_the_vendor_refuses_is_found(language: str, case: str) -> None:
    native = next(one for one in report_on(language, BAD[language][case]).verdicts if one.is_native)
    assert bool(doubts(native)) == (case not in UNKNOWABLE)


@given(broken)
@MANY
def test_what_the_linter_calls_clean_the_vendor_takes_and_what_it_refuses_is_found(
    told: tuple[str, dict[str, Any]],
) -> None:
    language, body = told
    for verdict in report_on(language, body).verdicts:
        sent = body if verdict.is_native else as_it_stands(language, body, verdict.dialect)
        problem = judged(verdict.dialect, sent)
        assert problem is None or doubts(verdict), (verdict.dialect, problem, sent)


@given(broken)
@MANY
def test_every_vendor_takes_the_repaired_version(told: tuple[str, dict[str, Any]]) -> None:
    language, body = told
    for verdict in report_on(language, body).verdicts:
        if verdict.repaired is not None:
            repaired = json.loads(json.dumps(verdict.repaired))
            assert judged(verdict.dialect, repaired) is None, (verdict.dialect, repaired)
            assert is_taken(verdict.dialect, repaired), (verdict.dialect, repaired)


@given(broken)
@MANY
def test_a_look_changes_nothing_and_a_second_one_says_the_same(told: tuple[str, dict[str, Any]]) -> None:
    language, body = told
    before = json.dumps(body)
    assert report_on(language, body) == report_on(language, body)
    assert json.dumps(body) == before


@given(paths())
@MANY
def test_every_vendor_takes_the_repaired_version_of_a_stored_session(nodes: tuple[Node, ...]) -> None:
    for verdict in lint_session(snapshot_of(nodes)).verdicts:
        if verdict.repaired is not None:
            repaired = json.loads(json.dumps(verdict.repaired))
            assert judged(verdict.dialect, repaired) is None, (verdict.dialect, repaired)
            assert is_taken(verdict.dialect, repaired), (verdict.dialect, repaired)


ODD_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "parts", "type", "tool_calls", "functionCall", "text", "id", "function"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(st.sampled_from(sorted(BROKEN)), st.lists(ODD_JSON, max_size=4))
@MANY
def test_no_json_is_too_odd_to_be_looked_at(language: str, messages: list[Any]) -> None:
    field = {"openai-responses": "input", "gemini-generate": "contents"}.get(language, "messages")
    for verdict in report_on(language, {"model": "m", field: messages, "tools": messages}).verdicts:
        assert verdict.outcome in ("taken", "odd", "unportable", "rejected")
        if verdict.repaired is not None:
            assert is_taken(verdict.dialect, verdict.repaired)
