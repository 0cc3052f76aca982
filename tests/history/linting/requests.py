"""Requests in four languages for property tests: some as clients send them, most broken in every way we know."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

SIGNATURE = "c2lnbmVk"
TEXTS = st.sampled_from(["Hi", "Hi", "Hi", "", " ", "你好 "])
IDS = st.sampled_from(["a", "a", "b", "c", "x.y", ""])
NAMES = st.sampled_from(["f", "f", "g", "h i"])
SOUND_IDS = st.sampled_from(["a", "b", "c"])

Json = dict[str, Any]


def lists(values: st.SearchStrategy[Any], *, most: int = 4) -> st.SearchStrategy[list[Any]]:
    return st.lists(values, max_size=most)


def choice(*values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(*values)


# OpenAI Chat

CHAT_CALL = st.builds(
    lambda call_id, name, arguments: {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    },
    IDS,
    NAMES,
    st.sampled_from(["{}", '{"a": 1}', '{"cut', {"a": 1}]),
)
CHAT_CONTENT = choice(
    TEXTS,
    lists(
        st.sampled_from(
            [{"type": "text", "text": "Hi"}, {"type": "text", "text": ""}, {"type": "mystery"}, {"type": "tool_use"}]
        ),
        most=2,
    ),
)
CHAT_MESSAGE = choice(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "user", "system", "developer"]), "content": CHAT_CONTENT}),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": choice(CHAT_CONTENT, st.none())}),
    st.fixed_dictionaries(
        {"role": st.just("assistant"), "content": choice(TEXTS, st.none()), "tool_calls": lists(CHAT_CALL, most=2)}
    ),
    st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": IDS, "content": TEXTS}),
    st.fixed_dictionaries({"role": st.just("tool"), "tool_call_id": IDS, "name": NAMES, "content": TEXTS}),
    st.just({"role": "king", "content": "Hi"}),
)
CHAT_TOOLS = lists(st.builds(lambda name: {"type": "function", "function": {"name": name}}, NAMES), most=2)
CHAT = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "m", "m", ""]), "messages": lists(CHAT_MESSAGE, most=7)},
    optional={"tools": CHAT_TOOLS, "stream_options": st.just({"include_usage": True}), "stream": st.booleans()},
)

# OpenAI Responses

ITEM = choice(
    st.fixed_dictionaries(
        {"type": st.just("message"), "role": st.sampled_from(["user", "assistant", "developer"]), "content": TEXTS}
    ),
    st.fixed_dictionaries(
        {
            "type": st.just("function_call"),
            "call_id": IDS,
            "name": NAMES,
            "arguments": st.sampled_from(["{}", '{"cut', {"a": 1}]),
        }
    ),
    st.fixed_dictionaries({"type": st.just("function_call_output"), "call_id": IDS, "output": TEXTS}),
    st.just({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SIGNATURE}),
    st.just({"type": "reasoning", "id": "rs_2", "summary": []}),
    st.just({"type": "mystery"}),
)
RESPONSES = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "m", "m", ""]), "input": choice(lists(ITEM, most=8), TEXTS)},
    optional={"store": st.booleans(), "tools": lists(st.just({"type": "function", "name": "f"}), most=2)},
)

# Anthropic

BLOCK = choice(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}),
    st.fixed_dictionaries({"type": st.just("tool_result"), "tool_use_id": IDS, "content": TEXTS}),
    st.just({"type": "mystery"}),
)
SAID_BLOCK = choice(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXTS}),
    st.fixed_dictionaries(
        {"type": st.just("tool_use"), "id": IDS, "name": NAMES, "input": st.sampled_from([{}, {"a": 1}, "text", None])}
    ),
    st.just({"type": "thinking", "thinking": "Hm.", "signature": SIGNATURE}),
    st.just({"type": "thinking", "thinking": "Hm.", "signature": ""}),
)
ANTHROPIC_MESSAGE = choice(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "user", "system"]), "content": choice(lists(BLOCK), TEXTS)}
    ),
    st.fixed_dictionaries({"role": st.just("assistant"), "content": choice(lists(SAID_BLOCK), TEXTS)}),
)
ANTHROPIC = st.fixed_dictionaries(
    {"model": st.sampled_from(["m", "m", ""]), "messages": lists(ANTHROPIC_MESSAGE, most=6)},
    optional={
        "max_tokens": st.sampled_from([9, 2000]),
        "system": TEXTS,
        "temperature": st.just(0.5),
        "thinking": st.just({"type": "enabled", "budget_tokens": 1024}),
        "tools": lists(st.builds(lambda name: {"name": name, "input_schema": {}}, NAMES), most=2),
    },
)

# Gemini

PART = choice(
    st.fixed_dictionaries({"text": TEXTS}),
    st.builds(
        lambda name, call_id: {"functionResponse": {"name": name, "response": {"output": "1"}, **call_id}},
        NAMES,
        choice(st.just({}), st.builds(lambda given: {"id": given}, IDS)),
    ),
    st.just({}),
)
MODEL_PART = choice(
    st.fixed_dictionaries({"text": TEXTS}),
    st.builds(
        lambda name, arguments, more: {"functionCall": {"name": name, "args": arguments}, **more},
        NAMES,
        st.sampled_from([{}, {"a": 1}, "text"]),
        st.sampled_from([{}, {"thoughtSignature": SIGNATURE}]),
    ),
    st.just({"text": "Hm.", "thought": True}),
)
CONTENT = choice(
    st.fixed_dictionaries({"role": st.sampled_from(["user", "user", "system"]), "parts": lists(PART)}),
    st.fixed_dictionaries({"role": st.just("model"), "parts": lists(MODEL_PART)}),
)
GEMINI = st.fixed_dictionaries(
    {"contents": lists(CONTENT, most=6)},
    optional={"tools": lists(st.just({"functionDeclarations": [{"name": "f"}, {"name": "h i"}]}), most=1)},
)

BROKEN = {
    "openai-chat": CHAT,
    "openai-responses": RESPONSES,
    "anthropic-messages": ANTHROPIC,
    "gemini-generate": GEMINI,
}
