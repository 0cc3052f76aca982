"""Importers take twice as long for twice the file, in any shape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from bench.growth import assert_linear
from history.entries import Entry
from history.formats.base import Conversation, FormatError, UnreadableConversation
from history.formats.readers import READERS
from history.record import recorder
from project.accounts.models import User
from tests import factories
from tests.factories import model_input, model_output, tool_request, tool_results
from tests.history.formats.exported import everything, restored, wipe
from tests.history.importing.files import (
    chatgpt,
    chatgpt_node,
    claude_code,
    codex_meta,
    codex_said,
    document,
    lines,
    read_all,
    reader_of,
    rollout,
    text,
    tool_result,
    tool_use,
)

Make = Callable[[int], bytes]


def claude_code_chain(n: int) -> bytes:
    kinds = ("user", "assistant")
    return lines(*(claude_code(kinds[i % 2], f"u{i}", f"u{i - 1}" if i else None, [text("x")]) for i in range(n)))


def claude_code_branches(n: int) -> bytes:
    return lines(*(claude_code("user", f"u{i}", "u0" if i else None, [text(f"x{i}")]) for i in range(n)))


def claude_code_calls(n: int) -> bytes:
    used = [tool_use(f"t{i}") for i in range(n)]
    results = [tool_result(f"t{i}") for i in reversed(range(n))]
    return lines(
        claude_code("user", "u", None, [text("x")]),
        claude_code("assistant", "a", "u", used),
        claude_code("user", "r", "a", results),
    )


def codex_calls(n: int, *, ids: Callable[[int], str] = "call_{}".format) -> bytes:
    call = {"type": "function_call", "name": "shell", "arguments": "{}"}
    made = [rollout("response_item", **call, call_id=ids(i)) for i in range(n)]
    found = [
        rollout("response_item", type="function_call_output", call_id=ids(i), output="y") for i in reversed(range(n))
    ]
    return lines(codex_meta(), codex_said("user", "x"), *made, *found)


def codex_counts(n: int) -> bytes:
    """Counts that belong to an answer far above them."""
    used = {"last_token_usage": {"input_tokens": 1, "output_tokens": 1}}
    counts = ({**used, "total_token_usage": {"input_tokens": i}} for i in range(n))
    return lines(
        codex_meta(),
        codex_said("assistant", "x"),
        *(codex_said("user", f"x{i}") for i in range(n)),
        *(rollout("event_msg", type="token_count", info=info) for info in counts),
    )


def codex_compactions(n: int) -> bytes:
    return lines(
        codex_meta(),
        *(
            line
            for i in range(n)
            for line in (codex_said("user", f"x{i}"), rollout("compacted", message=f"s{i}", replacement_history=[]))
        ),
    )


GEMINI_RECORD = {"sessionId": "s", "projectHash": "p", "startTime": "2026-09-10T18:13:00.000Z"}


def gemini_message(i: int, **fields: Any) -> dict[str, Any]:
    kind = ("user", "gemini")[i % 2]
    return {"id": f"m{i}", "timestamp": "2026-09-10T18:13:21.000Z", "type": kind, "content": f"x{i}", **fields}


def gemini_calls(n: int) -> bytes:
    calls = [{"id": f"c{i}", "name": "f", "args": {}, "status": "success", "result": "y"} for i in range(n)]
    return document({**GEMINI_RECORD, "messages": [gemini_message(0), gemini_message(1, toolCalls=calls)]})


def gemini_rewinds(n: int) -> bytes:
    back = ({"$rewindTo": f"m{i + 1}"} for i in range(n))
    said = (gemini_message(i + 1) for i in range(n))
    return lines(GEMINI_RECORD, gemini_message(0), *(line for pair in zip(said, back, strict=True) for line in pair))


def gemini_rewritten(n: int) -> bytes:
    """A message is written again whole whenever something is added to it."""
    return lines(GEMINI_RECORD, gemini_message(0), *(gemini_message(1, content=f"x{i}") for i in range(n)))


def gemini_rewound_chain(n: int) -> bytes:
    return lines(GEMINI_RECORD, *map(gemini_message, range(n)), *({"$rewindTo": f"m{i}"} for i in reversed(range(n))))


def gemini_replaced(n: int) -> bytes:
    """What the model sees is replaced after every message, each time by something new."""
    changes = ({"$set": {"messages": [{**gemini_message(0), "id": f"r{i}", "content": f"r{i}"}]}} for i in range(n))
    said = (gemini_message(i + 1) for i in range(n))
    return lines(GEMINI_RECORD, gemini_message(0), *(line for pair in zip(said, changes, strict=True) for line in pair))


def checkpoint(n: int) -> bytes:
    return document([{"role": ("user", "model")[i % 2], "parts": [{"text": f"x{i}"}]} for i in range(n)])


def checkpoint_calls(n: int) -> bytes:
    called = [{"functionCall": {"name": "f", "args": {}}}] * n
    answered = [{"functionResponse": {"name": "f", "response": {"a": 1}}}] * n
    return document(
        [
            {"role": "user", "parts": [{"text": "x"}]},
            {"role": "model", "parts": called},
            {"role": "user", "parts": answered},
        ]
    )


def nplt(n: int, **fields: Any) -> bytes:
    messages = [{"role": ("user", "assistant")[i % 2], "content": f"x{i}", **fields} for i in range(n)]
    return document({"session_id": "s", "created_at": "2026-01-01T00:00:00", "messages": messages})


def nplt_calls(n: int) -> bytes:
    calls = [{"id": f"c{i}", "tool_name": "f", "arguments": {}, "status": "success", "result": "y"} for i in range(n)]
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y", "tool_calls": calls}]
    return document({"session_id": "s", "created_at": "2026-01-01T00:00:00", "messages": said})


def chatgpt_chain(n: int) -> bytes:
    roles = ("user", "assistant")
    nodes = [chatgpt_node(f"n{i}", f"n{i - 1}" if i else None, roles[i % 2], [f"x{i}"]) for i in range(n)]
    return document([chatgpt(*nodes)])


def chatgpt_backwards(n: int) -> bytes:
    """Each node stands before its parent."""
    roles = ("user", "assistant")
    nodes = [chatgpt_node(f"n{i}", f"n{i - 1}" if i else None, roles[i % 2], [f"x{i}"]) for i in reversed(range(n))]
    return document([chatgpt(*nodes)])


def chatgpt_branches(n: int) -> bytes:
    nodes = [chatgpt_node(f"n{i}", "n0" if i else None, "user", [f"x{i}"]) for i in range(n)]
    return document([chatgpt(*nodes)])


def chatgpt_circles(n: int) -> bytes:
    nodes = [chatgpt_node(f"n{i}", f"n{(i + 1) % n}", "user", [f"x{i}"]) for i in range(n)]
    return document([chatgpt(*nodes)])


def chatgpt_empty_nodes(n: int) -> bytes:
    """Nodes without a message are left out, and what follows them hangs on what came before."""
    empty = [chatgpt_node(f"n{i}", f"n{i - 1}" if i else None) for i in range(n)]
    said = [chatgpt_node(f"u{i}", f"n{n - 1}", "user", [f"x{i}"]) for i in range(n)]
    return document([chatgpt(*empty, *said)])


def chatgpt_tools(n: int) -> bytes:
    code = {"content_type": "code", "language": "python", "text": "1"}
    output = {"content_type": "execution_output", "text": "1"}
    nodes = [chatgpt_node("n0", None, "user", ["x"])]
    nodes += [
        chatgpt_node(f"n{i}", f"n{i - 1}", "assistant", content=code, recipient="python")
        if i % 2
        else chatgpt_node(f"n{i}", f"n{i - 1}", "tool", content=output, name="python")
        for i in range(1, n)
    ]
    return document([chatgpt(*nodes)])


def chatgpt_many(n: int) -> bytes:
    return document(
        [chatgpt(chatgpt_node("n", None, "user", ["x"]), id=f"c{i}", conversation_id=f"c{i}") for i in range(n)]
    )


ROOT = "00000000-0000-4000-8000-000000000000"


def claude_ai(n: int, *, parent: Callable[[int], str], **fields: Any) -> bytes:
    messages = [
        {
            "uuid": f"m{i}",
            "sender": ("human", "assistant")[i % 2],
            "text": f"x{i}",
            "content": [{"type": "text", "text": f"x{i}"}],
            "created_at": "2026-01-02T03:04:05Z",
            "parent_message_uuid": parent(i),
            **fields,
        }
        for i in range(n)
    ]
    return document([{"uuid": "c", "name": "n", "created_at": "2026-01-02T03:04:05Z", "chat_messages": messages}])


def claude_ai_calls(n: int) -> bytes:
    blocks = [{"type": "tool_use", "id": f"t{i}", "name": "f", "input": {}} for i in range(n)]
    blocks += [{"type": "tool_result", "tool_use_id": f"t{i}", "name": "f", "content": []} for i in reversed(range(n))]
    return claude_ai(2, parent=lambda i: "m0" if i else ROOT, content=blocks)


def sharegpt(n: int) -> bytes:
    return document([{"conversations": [{"from": ("human", "gpt")[i % 2], "value": f"x{i}"} for i in range(n)]}])


def sharegpt_calls(n: int) -> bytes:
    """All calls in one text, then all results."""
    called = "<tool_call>{}</tool_call>".format('{"name": "f", "arguments": {}}') * n
    turns = [{"from": "human", "value": "x"}, {"from": "gpt", "value": called}]
    return document([{"conversations": [*turns, *({"from": "tool", "value": "y"} for _ in range(n))]}])


def sharegpt_open_marks(n: int) -> bytes:
    """Marks that are opened and never closed."""
    return document([{"conversations": [{"from": "human", "value": "x"}, {"from": "gpt", "value": "<tool_call>" * n}]}])


def sharegpt_many(n: int) -> bytes:
    return lines(*({"conversations": [{"from": "human", "value": f"x{i}"}]} for i in range(n)))


def openai(n: int, *, call_id: Callable[[int], str] = "c{}".format) -> bytes:
    function = {"name": "f", "arguments": "{}"}
    called = [{"id": call_id(i), "type": "function", "function": function} for i in range(n)]
    found = [{"role": "tool", "tool_call_id": call_id(i), "content": "y"} for i in reversed(range(n))]
    said = [{"role": "user", "content": "x"}, {"role": "assistant", "content": None, "tool_calls": called}, *found]
    return lines({"messages": said})


def openai_chain(n: int) -> bytes:
    return lines({"messages": [{"role": ("user", "assistant")[i % 2], "content": f"x{i}"} for i in range(n)]})


def openai_parts(n: int) -> bytes:
    return lines({"messages": [{"role": "user", "content": [{"type": "text", "text": "x"}] * n}]})


def nested(n: int, value: Any = "x") -> Any:
    """Many small trees of 40 levels."""
    tree = value
    for _ in range(20):
        tree = {"a": [tree]}
    return [tree] * (n // 20 + 1)


FILES: dict[str, dict[str, tuple[int, Make]]] = {
    "claude-code": {
        "chain": (300, claude_code_chain),
        "branches": (300, claude_code_branches),
        "calls": (300, claude_code_calls),
        "one long line": (1_000_000, lambda n: lines(claude_code("user", "u", None, [text("x" * n)]))),
        "nested": (5_000, lambda n: lines(claude_code("assistant", "a", None, [tool_use("t", f=nested(n))]))),
    },
    "codex": {
        "calls": (2_000, codex_calls),
        "calls with one id": (300, lambda n: codex_calls(n, ids=lambda _: "c")),
        "token counts": (2_000, codex_counts),
        "compactions": (300, codex_compactions),
        "one long line": (1_000_000, lambda n: lines(codex_meta(), codex_said("user", "x" * n))),
    },
    "gemini-cli": {
        "calls": (300, gemini_calls),
        "rewinds": (300, gemini_rewinds),
        "rewound chain": (2_000, gemini_rewound_chain),
        "rewritten": (600, gemini_rewritten),
        "replaced": (1_500, gemini_replaced),
        "one long line": (1_000_000, lambda n: lines(GEMINI_RECORD, gemini_message(0, content="x" * n))),
    },
    "gemini-checkpoint": {"chain": (300, checkpoint), "equal calls": (300, checkpoint_calls)},
    "nplt": {
        "chain": (300, nplt),
        "calls": (300, nplt_calls),
        "nested": (30, lambda n: nplt(n, metadata={"a": nested(20)})),
    },
    "chatgpt": {
        "chain": (300, chatgpt_chain),
        "backwards": (300, chatgpt_backwards),
        "branches": (300, chatgpt_branches),
        "circles": (300, chatgpt_circles),
        "empty nodes": (300, chatgpt_empty_nodes),
        "tools": (300, chatgpt_tools),
        "many conversations": (100, chatgpt_many),
    },
    "claude-ai": {
        "chain": (300, lambda n: claude_ai(n, parent=lambda i: f"m{i - 1}" if i else ROOT)),
        "branches": (300, lambda n: claude_ai(n, parent=lambda i: "m0" if i else ROOT)),
        "forward": (300, lambda n: claude_ai(n, parent=lambda i: f"m{i + 1}")),
        "calls": (300, claude_ai_calls),
    },
    "sharegpt": {
        "chain": (300, sharegpt),
        "calls": (300, sharegpt_calls),
        "open marks": (1_000, sharegpt_open_marks),
        "many conversations": (150, sharegpt_many),
    },
    "requests": {
        "chain": (300, openai_chain),
        "calls": (300, openai),
        "calls with one id": (300, lambda n: openai(n, call_id=lambda _: "c")),
        "parts": (1_000, openai_parts),
        "many conversations": (100, lambda n: openai_chain(2) * n),
    },
}
CASES = [(name, shape) for name, shapes in FILES.items() for shape in shapes]


def test_every_format_is_measured() -> None:
    assert list(FILES) == [reader.name for reader in READERS]


@pytest.mark.parametrize(("name", "shape"), CASES)
def test_reading_a_file_takes_linear_time(name: str, shape: str) -> None:
    size, make = FILES[name][shape]
    small = make(size // 10 or 1)
    assert name == reader_of(small).name
    assert all(isinstance(found, Conversation) for found in _read(small))
    assert_linear(_read, make, size=size)


def _chain(n: int) -> list[Entry]:
    return [model_input(f"x{i}") if i % 2 == 0 else model_output(f"x{i}") for i in range(n)]


def _calls(n: int) -> list[Entry]:
    found = [factories.tool_result(f"c{i}") for i in reversed(range(n))]
    return [model_input("x"), model_output("", *(tool_request(f"c{i}") for i in range(n))), tool_results(*found)]


@pytest.mark.django_db
@pytest.mark.parametrize("entries", [_chain, _calls])
def test_restoring_an_export_takes_linear_time(ada: User, entries: Callable[[int], list[Entry]]) -> None:
    def export(n: int) -> bytes:
        wipe()
        recorder.append_many(recorder.start_session(owner=ada), entries(n), after=0)
        file = everything()
        wipe()
        return file

    def restore(file: bytes) -> None:
        with transaction.atomic():
            [told] = restored(file)
            assert told.outcome == "imported"
            transaction.set_rollback(True)

    assert_linear(restore, export, size=200)


def _read(content: bytes) -> list[Conversation | UnreadableConversation]:
    try:
        return read_all(content)
    except FormatError as error:
        raise AssertionError(f"the file is not read: {error}") from error
