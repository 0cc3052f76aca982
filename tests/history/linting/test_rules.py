"""Every rule of every vendor: a request that breaks it, and the place where that is found."""

from __future__ import annotations

from typing import Any

import pytest

from history.linting import (
    RULES,
    LintInput,
    LintReport,
    LintSeverity,
    NotAConversation,
    lint_request,
    parse_conversation,
    parse_text,
)
from tests.vendors.test_vendors import (
    ANSWER,
    ASKED,
    CALL,
    OUTPUT,
    QUESTION,
    RESPONSE,
    TEXT,
    THOUGHT,
    call_part,
    chat,
    chat_calls,
    chat_result,
    contents,
    message_of,
    messages,
    responses,
    result,
    use,
)

pytestmark = pytest.mark.no_database

HI = message_of("user")
IMAGE = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}


def chat_call(call_id: str = "a", arguments: Any = "{}") -> dict[str, Any]:
    call = {"id": call_id, "type": "function", "function": {"name": "f", "arguments": arguments}}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


def chat_tools(*names: str) -> list[dict[str, Any]]:
    return [{"type": "function", "function": {"name": name}} for name in names]


def response(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"functionResponse": {"name": name, "response": {"output": "1"}, **more}}


def numbered(call_id: str) -> dict[str, Any]:
    part = call_part()
    return {**part, "functionCall": {**part["functionCall"], "id": call_id}}


ASKING = ("model", [call_part()])
TWO_TOOLS = [{"name": "f", "input_schema": {}}, {"name": "f", "input_schema": {}}]
BAD_IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/tiff", "data": "AA=="}}
THINKING = {"type": "enabled", "budget_tokens": 1024}

# The rule, the request, the place.
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    # OpenAI Chat
    "openai-chat/malformed": (chat("Hi"), "messages[0]"),  # type: ignore[arg-type]
    "openai-chat/no-model": ({"messages": [HI]}, "model"),
    "openai-chat/no-messages": (chat(), "messages"),
    "openai-chat/role": (chat(message_of("king")), "messages[0].role"),
    "openai-chat/content": (chat(HI, {"role": "assistant", "content": None}), "messages[1].content"),
    "openai-chat/empty-text": (chat({"role": "user", "content": ""}), "messages[0].content"),
    "openai-chat/part-type": (chat(message_of("user", {"type": "tool_use"})), "messages[0].content[0]"),
    "openai-chat/media-in-result": (
        chat(HI, chat_calls("a"), {"role": "tool", "tool_call_id": "a", "content": [IMAGE]}),
        "messages[2].content[0]",
    ),
    "openai-chat/no-answer": (chat(HI, chat_calls("a", "b"), chat_result("a")), "messages[1].tool_calls[1]"),
    "openai-chat/late-answer": (chat(HI, chat_calls("a"), HI, chat_result("a")), "messages[3]"),
    "openai-chat/orphan": (chat(HI, chat_result("a")), "messages[1]"),
    "openai-chat/answered-twice": (chat(HI, chat_calls("a"), chat_result("a"), chat_result("a")), "messages[3]"),
    "openai-chat/no-id": (chat(HI, chat_call("")), "messages[1].tool_calls[0].id"),
    "openai-chat/same-id": (
        chat(HI, chat_calls("a"), chat_result("a"), chat_calls("a"), chat_result("a")),
        "messages[3].tool_calls[0]",
    ),
    "openai-chat/long-id": (chat(HI, chat_calls("x" * 41), chat_result("x" * 41)), "messages[1].tool_calls[0].id"),
    "openai-chat/arguments": (
        chat(HI, chat_call(arguments={}), chat_result("a")),
        "messages[1].tool_calls[0].function.arguments",
    ),
    "openai-chat/arguments-json": (
        chat(HI, chat_call(arguments='{"a": '), chat_result("a")),
        "messages[1].tool_calls[0].function.arguments",
    ),
    "openai-chat/calls-of-others": (
        chat({**chat_calls("a"), "role": "user", "content": "x"}),
        "messages[0].tool_calls",
    ),
    "openai-chat/reasoning": (chat(HI, {**message_of("assistant"), "reasoning_content": "Hm."}), "messages[1]"),
    "openai-chat/turns": (chat(HI, HI), "messages[1]"),
    "openai-chat/late-system": (chat(HI, message_of("system")), "messages[1]"),
    "openai-chat/stream-options": (chat(HI, stream_options={}), "stream_options"),
    "openai-chat/tool-name": (chat(HI, tools=chat_tools("a b")), "tools[0].function.name"),
    "openai-chat/same-tool": (chat(HI, tools=chat_tools("f", "f")), "tools[1].function.name"),
    # OpenAI Responses
    "openai-responses/malformed": ({"model": "m", "input": 7}, "input"),
    "openai-responses/no-model": ({"input": "Hi"}, "model"),
    "openai-responses/no-messages": (responses(), "input"),
    "openai-responses/two-chains": (
        {**responses(QUESTION), "previous_response_id": "r", "conversation": "c"},
        "conversation",
    ),
    "openai-responses/role": (responses({**QUESTION, "role": "king"}), "input[0].role"),
    "openai-responses/content": (responses({**QUESTION, "content": None}), "input[0].content"),
    "openai-responses/empty-text": (responses({**QUESTION, "content": ""}), "input[0].content"),
    "openai-responses/part-type": (responses({**QUESTION, "content": [IMAGE]}), "input[0].content[0]"),
    "openai-responses/item-type": (responses(QUESTION, {"type": "mystery"}), "input[1]"),
    "openai-responses/no-answer": (responses(QUESTION, CALL), "input[1]"),
    "openai-responses/late-answer": (responses(QUESTION, CALL, QUESTION, OUTPUT), "input[3]"),
    "openai-responses/calls-last": (responses(QUESTION, CALL, ANSWER, OUTPUT), "input[1]"),
    "openai-responses/orphan": (responses(QUESTION, OUTPUT), "input[1]"),
    "openai-responses/answered-twice": (responses(QUESTION, CALL, OUTPUT, OUTPUT), "input[3]"),
    "openai-responses/no-id": (responses(QUESTION, {**CALL, "call_id": ""}), "input[1].call_id"),
    "openai-responses/same-id": (responses(QUESTION, CALL, OUTPUT, CALL, OUTPUT), "input[3]"),
    "openai-responses/long-id": (responses(QUESTION, {**CALL, "call_id": "x" * 65}), "input[1].call_id"),
    "openai-responses/arguments": (responses(QUESTION, {**CALL, "arguments": {}}, OUTPUT), "input[1].arguments"),
    "openai-responses/arguments-json": (responses(QUESTION, {**CALL, "arguments": "{"}, OUTPUT), "input[1].arguments"),
    "openai-responses/reasoning-alone": (responses(THOUGHT, QUESTION), "input[0]"),
    "openai-responses/reasoning-kept": (
        {**responses(QUESTION, {**THOUGHT, "encrypted_content": None}, ANSWER), "store": False},
        "input[1]",
    ),
    "openai-responses/reasoning-by-id": (
        responses(QUESTION, {**THOUGHT, "encrypted_content": None}, ANSWER),
        "input[1]",
    ),
    "openai-responses/tool-name": (
        {**responses(QUESTION), "tools": [{"type": "function", "name": "a b"}]},
        "tools[0].name",
    ),
    "openai-responses/same-tool": (
        {**responses(QUESTION), "tools": [{"type": "function", "name": "f"}] * 2},
        "tools[1].name",
    ),
    # Anthropic
    "anthropic-messages/malformed": (messages(message_of("user", "Hi")), "messages[0].content[0]"),
    "anthropic-messages/no-model": ({"max_tokens": 9, "messages": [HI]}, "model"),
    "anthropic-messages/no-limit": ({"model": "m", "messages": [HI]}, "max_tokens"),
    "anthropic-messages/no-messages": (messages(), "messages"),
    "anthropic-messages/role": (messages(message_of("tool")), "messages[0].role"),
    "anthropic-messages/system": (messages(HI, message_of("system")), "messages[1].role"),
    "anthropic-messages/content": (messages({"role": "user", "content": []}), "messages[0].content"),
    "anthropic-messages/empty-text": (
        messages(message_of("user", {"type": "text", "text": " "})),
        "messages[0].content[0].text",
    ),
    "anthropic-messages/trailing-space": (messages(HI, {"role": "assistant", "content": "So "}), "messages[1].content"),
    "anthropic-messages/part-type": (messages(message_of("user", use("a"))), "messages[0].content[0]"),
    "anthropic-messages/media-type": (messages(message_of("user", BAD_IMAGE)), "messages[0].content[0].source"),
    "anthropic-messages/no-answer": (messages(HI, message_of("assistant", use("a"))), "messages[1].content[0]"),
    "anthropic-messages/late-answer": (
        messages(
            HI, message_of("assistant", use("a")), HI, message_of("assistant", TEXT), message_of("user", result("a"))
        ),
        "messages[4].content[0]",
    ),
    "anthropic-messages/split": (
        messages(
            HI,
            message_of("assistant", use("a"), use("b")),
            message_of("user", result("a")),
            message_of("user", result("b")),
        ),
        "messages[3].content[0]",
    ),
    "anthropic-messages/results-first": (
        messages(HI, message_of("assistant", use("a")), message_of("user", TEXT, result("a"))),
        "messages[2].content[1]",
    ),
    "anthropic-messages/calls-last": (
        messages(HI, message_of("assistant", use("a"), TEXT), message_of("user", result("a"))),
        "messages[1].content[1]",
    ),
    "anthropic-messages/orphan": (messages(message_of("user", result("a"))), "messages[0].content[0]"),
    "anthropic-messages/answered-twice": (
        messages(HI, message_of("assistant", use("a")), message_of("user", result("a"), result("a"))),
        "messages[2].content[1]",
    ),
    "anthropic-messages/no-id": (messages(HI, message_of("assistant", use(""))), "messages[1].content[0].id"),
    "anthropic-messages/same-id": (
        messages(HI, message_of("assistant", use("a"), use("a")), message_of("user", result("a"), result("a"))),
        "messages[1].content[1]",
    ),
    "anthropic-messages/id-alphabet": (
        messages(HI, message_of("assistant", use("a.b")), message_of("user", result("a.b"))),
        "messages[1].content[0].id",
    ),
    "anthropic-messages/arguments": (
        messages(HI, message_of("assistant", {**use("a"), "input": "{}"}), message_of("user", result("a"))),
        "messages[1].content[0].input",
    ),
    "anthropic-messages/unsigned": (
        messages(HI, message_of("assistant", {"type": "thinking", "thinking": "Hm."}, TEXT), HI),
        "messages[1].content[0]",
    ),
    "anthropic-messages/thinking-first": (
        messages(
            HI, message_of("assistant", use("a")), message_of("user", result("a")), max_tokens=2000, thinking=THINKING
        ),
        "messages[1].content[0]",
    ),
    "anthropic-messages/thinking-budget": (messages(HI, thinking=THINKING), "thinking.budget_tokens"),
    "anthropic-messages/thinking-temperature": (
        messages(HI, max_tokens=2000, thinking=THINKING, temperature=0.5),
        "temperature",
    ),
    "anthropic-messages/turns": (messages(HI, HI), "messages[1]"),
    "anthropic-messages/opening": (messages(message_of("assistant", TEXT), HI), "messages[0].content[0].text"),
    "anthropic-messages/tool-name": (messages(HI, tools=[{"name": "a b", "input_schema": {}}]), "tools[0].name"),
    "anthropic-messages/same-tool": (messages(HI, tools=TWO_TOOLS), "tools[1].name"),
    # Gemini
    "gemini-generate/malformed": ({"contents": [7]}, "contents[0]"),
    "gemini-generate/no-messages": (contents(), "contents"),
    "gemini-generate/role": (contents(ASKED, ("system", [{"text": "x"}])), "contents[1].role"),
    "gemini-generate/content": (contents(("user", [])), "contents[0].parts"),
    "gemini-generate/empty-text": (contents(("user", [{"text": ""}])), "contents[0].parts[0]"),
    "gemini-generate/opening": (contents(("model", [{"text": "x"}]), ASKED), "contents[0].parts[0]"),
    "gemini-generate/ending": (contents(ASKED, ("model", [{"text": "x"}])), "contents[1]"),
    "gemini-generate/no-answer": (contents(ASKED, ASKING), "contents[1].parts[0]"),
    "gemini-generate/late-answer": (
        contents(ASKED, ASKING, ASKED, ("model", [{"text": "x"}]), ("user", [RESPONSE])),
        "contents[4].parts[0]",
    ),
    "gemini-generate/split": (
        contents(ASKED, ("model", [call_part(), call_part()]), ("user", [response()]), ("user", [response()])),
        "contents[3].parts[0]",
    ),
    "gemini-generate/results-first": (
        contents(ASKED, ASKING, ("user", [{"text": "x"}, RESPONSE])),
        "contents[2].parts[1]",
    ),
    "gemini-generate/orphan": (contents(("user", [RESPONSE])), "contents[0].parts[0]"),
    "gemini-generate/answered-twice": (contents(ASKED, ASKING, ("user", [RESPONSE, RESPONSE])), "contents[2].parts[1]"),
    "gemini-generate/result-name": (
        contents(ASKED, ("model", [numbered("a")]), ("user", [response("g", id="a")])),
        "contents[2].parts[0]",
    ),
    "gemini-generate/result-id": (
        contents(ASKED, ("model", [numbered("a")]), ("user", [response(id="b")])),
        "contents[2].parts[0]",
    ),
    "gemini-generate/same-id": (
        contents(ASKED, ("model", [numbered("a"), numbered("a")]), ("user", [response(id="a"), response(id="a")])),
        "contents[1].parts[1]",
    ),
    "gemini-generate/call-turn": (
        contents(ASKED, ("model", [{"text": "x"}]), ASKING, ("user", [RESPONSE])),
        "contents[2]",
    ),
    "gemini-generate/calls-of-others": (contents(("user", [call_part()])), "contents[0].parts[0]"),
    "gemini-generate/arguments": (
        contents(ASKED, ("model", [{"functionCall": {"name": "f", "args": "{}"}}])),
        "contents[1].parts[0].functionCall.args",
    ),
    "gemini-generate/response": (
        contents(ASKED, ASKING, ("user", [{"functionResponse": {"name": "f", "response": "42"}}])),
        "contents[2].parts[0].functionResponse.response",
    ),
    "gemini-generate/unsigned": (
        contents(ASKED, ("model", [call_part(signature=None)]), ("user", [RESPONSE])),
        "contents[1]",
    ),
    "gemini-generate/thought": (contents(ASKED, ("model", [{"text": "x", "thought": True}])), "contents[1].parts[0]"),
    "gemini-generate/tool-name": (
        {**contents(ASKED), "tools": [{"functionDeclarations": [{"name": "a b"}]}]},
        "tools[0].functionDeclarations[0].name",
    ),
    "gemini-generate/same-tool": (
        {**contents(ASKED), "tools": [{"functionDeclarations": [{"name": "f"}, {"name": "f"}]}]},
        "tools[0].functionDeclarations[1].name",
    ),
}


def report_on(rule_id: str) -> LintReport:
    return lint_request(LintInput(body=BROKEN[rule_id][0], language=rule_id.partition("/")[0]))


def test_every_rule_has_a_request_that_breaks_it() -> None:
    assert set(BROKEN) == set(RULES)


@pytest.mark.parametrize("rule_id", RULES)
def test_the_broken_rule_is_named_with_its_place(rule_id: str) -> None:
    native = next(verdict for verdict in report_on(rule_id).verdicts if verdict.is_native)
    found = [(finding.rule.id, finding.place) for finding in native.findings]
    assert (rule_id, BROKEN[rule_id][1]) in found
    assert "%(" not in " ".join(finding.text for finding in native.findings)
    assert native.is_rejected or RULES[rule_id].severity is not LintSeverity.REJECTED


# From one vendor to another


def outcomes(report: LintReport) -> dict[str, str]:
    return {verdict.dialect: verdict.outcome for verdict in report.verdicts}


def test_all_four_dialects_reject_a_call_without_a_result() -> None:
    report = report_on("openai-chat/no-answer")
    assert outcomes(report) == dict.fromkeys(outcomes(report), "rejected")
    places = {
        finding.place for verdict in report.verdicts for finding in verdict.findings if "no-answer" in finding.rule.id
    }
    assert places == {"messages[1].tool_calls[1]"}


def test_what_only_one_vendor_minds_is_rejected_by_that_one_only() -> None:
    report = lint_request(
        parse_conversation({"model": "gpt", "messages": [{"role": "assistant", "content": "Hi"}, HI]})
    )
    assert outcomes(report)["gemini-generate"] == "rejected"
    assert outcomes(report)["openai-chat"] == "taken"
    assert outcomes(report)["anthropic-messages"] == "odd"


def test_signed_reasoning_is_unportable_and_not_rejected() -> None:
    thinking = {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}
    report = lint_request(parse_conversation(messages(HI, message_of("assistant", thinking, TEXT), HI)))
    assert outcomes(report)["anthropic-messages"] == "taken"
    foreign = next(verdict for verdict in report.verdicts if verdict.dialect == "openai-responses")
    assert [(one.rule.id, one.place) for one in foreign.findings] == [("carrying/reasoning-foreign", "messages[1]")]
    assert foreign.outcome == "unportable"


def test_a_kind_of_file_that_a_vendor_does_not_take_is_unportable() -> None:
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    report = lint_request(parse_conversation(chat(message_of("user", sound, TEXT))))
    assert outcomes(report)["openai-chat"] == "taken"
    assert outcomes(report)["anthropic-messages"] == "unportable"
    assert outcomes(report)["gemini-generate"] == "taken"


def test_the_repairs_are_listed_with_their_places() -> None:
    report = report_on("openai-chat/late-answer")
    native = next(verdict for verdict in report.verdicts if verdict.is_native)
    assert [(repair.code, repair.place) for repair in native.repairs] == [("results_moved", "messages[1]")]
    assert native.repaired is not None
    assert [message["role"] for message in native.repaired["messages"]] == ["user", "assistant", "tool", "user"]


def test_what_a_client_asked_for_besides_stays_unless_it_is_the_fault() -> None:
    body = messages(HI, max_tokens=2000, thinking={**THINKING, "budget_tokens": 5000}, service_tier="auto")
    native = next(verdict for verdict in lint_request(parse_conversation(body)).verdicts if verdict.is_native)
    assert native.repaired is not None
    assert native.repaired["service_tier"] == "auto"
    assert "thinking" not in native.repaired
    assert [(repair.code, repair.place) for repair in native.repairs] == [("field_left_out", "thinking")]


def test_names_of_tools_are_changed_alike_in_the_offer_and_in_the_calls() -> None:
    call = {"id": "a", "type": "function", "function": {"name": "files.read", "arguments": "{}"}}
    said_so = {"role": "assistant", "content": None, "tool_calls": [call]}
    body = chat(HI, said_so, chat_result("a"), tools=chat_tools("files.read", "files_read"))
    for verdict in lint_request(parse_conversation(body)).verdicts:
        assert "files_read_2" in str(verdict.repaired)
        assert "files.read" not in str(verdict.repaired)


# What people paste


@pytest.mark.parametrize(
    ("value", "language"),
    [
        (chat(HI), "openai-chat"),
        ({"model": "claude-x", "messages": [HI]}, "anthropic-messages"),
        (messages(HI, system="x"), "anthropic-messages"),
        (messages(HI, message_of("assistant", use("a"))), "anthropic-messages"),
        (chat(HI, chat_calls("a")), "openai-chat"),
        ({"input": "Hi"}, "openai-responses"),
        (contents(ASKED), "gemini-generate"),
        ([HI], "openai-chat"),
        ([QUESTION], "openai-responses"),
        ([{"role": "user", "parts": [{"text": "Hi"}]}], "gemini-generate"),
        ([message_of("assistant", use("a"))], "anthropic-messages"),
    ],
)
def test_the_language_is_recognised(value: Any, language: str) -> None:
    assert parse_conversation(value).language == language


def test_who_pastes_messages_alone_misses_no_model() -> None:
    for value in ([HI], [message_of("user", result("a"))]):
        assert not any("no-model" in one.rule.id or "no-limit" in one.rule.id for one in _native(value))


def _native(value: Any) -> tuple[Any, ...]:
    return next(verdict for verdict in lint_request(parse_conversation(value)).verdicts if verdict.is_native).findings


def test_json_lines_are_several_conversations() -> None:
    told = parse_text('\ufeff{"messages": []}\n\n{"contents": []}\n')
    assert [one.language for one in told] == ["openai-chat", "gemini-generate"]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("hello", "not valid JSON"),
        ("7", "a JSON object"),
        ("{}", "messages, input or contents"),
        ("[]", "must contain objects"),
        ('{"messages": []}\n{', "line 2"),
        ('{"messages": ' + "[" * 300 + "]" * 300 + "}", "deep"),
    ],
)
def test_what_is_no_conversation_is_told_in_words(text: str, why: str) -> None:
    with pytest.raises(NotAConversation, match=why):
        [lint_request(one) for one in parse_text(text)]
