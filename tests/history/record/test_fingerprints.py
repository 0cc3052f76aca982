"""Fingerprints: what changes the chain, and what clients change between turns without changing the conversation."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings as hypothesis_settings, strategies as st

from history.entries import (
    Entry,
    Media,
    ModelInput,
    ModelOutput,
    NotebookSet,
    OtherPart,
    Part,
    Reasoning,
    SystemInstructionSet,
    Text,
    ToolRequest,
    ToolsOffered,
)
from history.models import ApiKey, Message
from history.record import fingerprints, recorder
from tests.factories import (
    create_chat,
    example_count,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
)

REMINDER = "<system-reminder>\nthe todo list is empty\n</system-reminder>"


def mark(entry: Entry, *, after: bytes = fingerprints.START, scope: str = "key:1") -> bytes:
    return fingerprints.fingerprint(entry, after=after, scope=scope)


def texts(*parts: str) -> ModelInput:
    return ModelInput(parts=tuple(Text(text=part) for part in parts))


def pictured(name: str, *parts: Part) -> ModelOutput:
    return ModelOutput(parts=(*parts, Media(media_type="image/png", sha256=name * 64)))


def other_part(**data: Any) -> ModelInput:
    return ModelInput(parts=(OtherPart(data=data),))


SAME: dict[str, tuple[Entry, Entry]] = {
    "white space at the ends": (model_input("hello"), model_input("  hello\n")),
    "a reminder before the text": (texts("hello"), texts(REMINDER, "hello")),
    "a reminder after the text": (texts("hello"), texts("hello", REMINDER)),
    "a reminder between two texts": (texts("hello", "there"), texts("hello", REMINDER, "there")),
    "a reminder inside the text": (model_input("hello"), model_input(f"hello\n{REMINDER}")),
    "a reminder that was cut off": (model_input("hello"), model_input("hello <system-reminder>the todo")),
    "a cache marker": (
        model_input("hello"),
        ModelInput(parts=(Text(text="hello", extra={"cache_control": {"type": "x"}}),)),
    ),
    "a block's id": (model_output("hi"), ModelOutput(parts=(Text(text="hi", extra={"id": "msg_1"}),))),
    "reasoning": (model_output("hi"), ModelOutput(parts=(Reasoning(text="hm", signature="s"), Text(text="hi")))),
    "the model and its usage": (model_output("hi"), model_output("hi", model="other", latency=1.0, end_reason="stop")),
    "metadata and time": (model_input("hello"), replace(model_input("hello", metadata={"a": 1}), is_internal=True)),
    "the order of arguments": (
        model_output("", tool_request("c1", arguments='{"a": 1, "b": {"x": 1, "y": 2}}')),
        model_output("", tool_request("c1", arguments='{"b":{"y":2,"x":1},\n "a":1}')),
    ),
    "no arguments": (
        model_output("", tool_request("c1", arguments="{}")),
        model_output("", tool_request("c1", arguments="")),
    ),
    "the id of a call": (model_output("", tool_request("c1")), model_output("", tool_request("toolu_2"))),
    "a whole number with a point": (
        model_output("", tool_request("c1", arguments='{"t": 30.0, "n": [1e3, -0.0]}')),
        model_output("", tool_request("c1", arguments='{"t": 30, "n": [1000, 0]}')),
    ),
    "a number that JavaScript cannot hold": (
        model_output("", tool_request("c1", arguments='{"n": 12345678901234567890}')),
        model_output("", tool_request("c1", arguments='{"n": 12345678901234567000}')),
    ),
    "a number that overflows": (
        model_output("", tool_request("c1", arguments='{"n": 1e999}')),
        model_output("", tool_request("c1", arguments='{"n": 1e998}')),
    ),
    "a thought aloud": (model_output("<think>hm\n</think>\n\nYes."), model_output("Yes.")),
    "an answer in several pieces": (
        model_output("It rains."),
        ModelOutput(parts=(Text(text="It "), Text(text="rains", extra={"citations": [1]}), Text(text="."))),
    ),
    "thoughts between the pieces of an answer": (
        model_output("It rains."),
        ModelOutput(parts=(Text(text="It "), Reasoning(text="hm"), Text(text="rains."))),
    ),
    "arguments of a call that has an id of Anthropic's": (
        model_output("", tool_request("toolu_01A09q90qw90lq917835lq9", "Bash", '{"command": "cd /repo && make"}')),
        model_output("", tool_request("toolu_01A09q90qw90lq917835lq9", "Bash", '{"command": "make"}')),
    ),
    "a picture beside words": (model_output("A cat."), pictured("a", Text(text="A cat."))),
    "the marker of an unknown part": (
        other_part(type="file", file={"file_id": "f1"}),
        other_part(type="file", file={"file_id": "f1"}, cache_control={"type": "ephemeral"}),
    ),
    "the text of a result": (
        tool_results(tool_result("c1", "short")),
        tool_results(tool_result("c1", "long", status="failed")),
    ),
    "the order of results": (
        tool_results(tool_result("a"), tool_result("b")),
        tool_results(tool_result("b"), tool_result("a")),
    ),
}
DIFFERENT: dict[str, tuple[Entry, Entry]] = {
    "another text": (model_input("hello"), model_input("hallo")),
    "another case": (model_input("hello"), model_input("Hello")),
    "of another owner": (model_input("hello"), model_output("hello")),
    "another tool": (model_output("", tool_request("c1", "disk")), model_output("", tool_request("c1", "cpu"))),
    "another call of Anthropic's": (
        model_output("", tool_request("toolu_01A09q90qw90lq917835lq9")),
        model_output("", tool_request("toolu_01B09q90qw90lq917835lq9")),
    ),
    "another argument": (
        model_output("", tool_request("c1", arguments="[1]")), model_output("", tool_request("c1", arguments="[2]")),
    ),
    "arguments cut off elsewhere": (
        model_output("", tool_request("c1", arguments='{"a')), model_output("", tool_request("c1", arguments='{"ab')),
    ),
    "the order of calls": (
        model_output("", tool_request("1", "a"), tool_request("2", "b")),
        model_output("", tool_request("2", "b"), tool_request("1", "a")),
    ),
    "another image": (
        ModelInput(parts=(Media(media_type="image/png", sha256="a" * 64),)),
        ModelInput(parts=(Media(media_type="image/png", sha256="b" * 64),)),
    ),
    "another number": (
        model_output("", tool_request("c1", arguments="[1.5]")),
        model_output("", tool_request("c1", arguments="[1.25]")),
    ),
    "another picture of a model": (pictured("a"), pictured("b")),
    "another unknown part": (
        other_part(type="file", file={"file_id": "f1"}), other_part(type="file", file={"file_id": "f2"}),
    ),
    "results of other calls": (tool_results(tool_result("c1")), tool_results(tool_result("c2"))),
}  # fmt: skip
SILENT: dict[str, Entry] = {
    "an instruction": SystemInstructionSet(instruction="be kind"),
    "tools": ToolsOffered(),
    "a notebook": NotebookSet(content="tea"),
    "a reminder alone": model_input(REMINDER),
    "an empty answer": ModelOutput(parts=(Reasoning(text="hm"),)),
}


@pytest.mark.parametrize("what", SAME)
def test_what_clients_change_between_turns_does_not_change_the_chain(what: str) -> None:
    one, other = SAME[what]
    assert mark(one) == mark(other)


@pytest.mark.parametrize("what", DIFFERENT)
def test_what_was_said_differently_changes_the_chain(what: str) -> None:
    one, other = DIFFERENT[what]
    assert mark(one) != mark(other)


@pytest.mark.parametrize("what", SILENT)
def test_what_says_nothing_to_the_other_side_leaves_the_chain_as_it_is(what: str) -> None:
    before = mark(model_input("hello"))
    assert mark(SILENT[what], after=before) == before


def test_the_chain_depends_on_everything_before() -> None:
    after_hello, after_hallo = mark(model_input("hello")), mark(model_input("hallo"))
    assert mark(model_output("hi"), after=after_hello) != mark(model_output("hi"), after=after_hallo)
    assert mark(model_input("hello"), after=after_hello) != after_hello
    assert len(after_hello) == fingerprints.SIZE


def test_two_scopes_never_meet() -> None:
    assert mark(model_input("hello"), scope="key:1") != mark(model_input("hello"), scope="key:2")
    scopes = {fingerprints.scope_of(api_key_id=key, owner_id=owner) for key in (None, 1, 2) for owner in (1, 2)}
    assert scopes == {"owner:1", "owner:2", "key:1", "key:2"}


def test_guesses_cannot_be_tested_without_the_key(settings: Any) -> None:
    here = mark(model_input("hello"))
    settings.PARLEY_FINGERPRINT_KEY = b"another key of thirty-two bytes!"
    assert mark(model_input("hello")) != here


@hypothesis_settings(max_examples=example_count(100), deadline=None, derandomize=True)
@given(texts=st.lists(st.text(st.characters()), max_size=4), arguments=st.text(st.characters()))
def test_any_text_has_a_fingerprint(texts: list[str], arguments: str) -> None:
    request = ToolRequest(call_id="c", name="t", arguments=arguments)
    entry = ModelOutput(parts=(*(Text(text=text) for text in texts), request))
    assert mark(entry) == mark(entry)


@pytest.mark.parametrize("arguments", ["[" * 100_000, '{"a":' * 50_000, "9" * 10_000, "NaN", '{"a": 1e999}'])
def test_arguments_that_no_parser_likes_have_a_fingerprint_too(arguments: str) -> None:
    assert len(mark(model_output("", tool_request("c1", arguments=arguments)))) == fingerprints.SIZE


@pytest.mark.django_db
def test_the_chain_is_stored_with_each_entry_and_taken_before_redaction(ada: Any) -> None:
    key = ApiKey.objects.create(name="k", prefix="pk_1", secret_hash=b"x", owner=ada, recording="redacted")
    secret = "my key is sk-ant-api03-" + "a1B2" * 24
    session = recorder.start_session(owner=ada, api_key=key, source="relay")
    recorder.append_many(session, [model_input(secret), model_output("noted")], after=0)
    first, second = Message.objects.filter(session=session).order_by("seq")
    scope = f"key:{key.pk}"
    assert first.fingerprint == mark(model_input(secret), scope=scope)
    assert second.fingerprint == mark(model_output("noted"), after=first.fingerprint, scope=scope)
    assert session.head_fingerprint == second.fingerprint
    assert secret not in (first.body or "")


@pytest.mark.django_db
def test_entries_beside_the_path_leave_the_chain_alone_and_branches_have_their_own(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three")
    recorder.move_head(session, to=2)
    assert session.head_fingerprint == Message.objects.get(session=session, seq=2).fingerprint
    recorder.append(session, model_input("three"), after=2)
    same, again = Message.objects.filter(session=session, seq__in=[3, 5]).order_by("seq")
    assert same.fingerprint == again.fingerprint
