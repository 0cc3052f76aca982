"""The exports of ChatGPT and Claude.ai."""

from typing import Any

from history.entries import (
    Media,
    ModelInput,
    ModelOutput,
    OtherPart,
    Reasoning,
    SystemInstructionSet,
    Text,
    ToolResults,
)
from history.formats.base import Conversation, UnreadableConversation
from tests.history.importing.files import (
    PNG,
    chatgpt,
    chatgpt_node,
    document,
    path_of,
    read_all,
    read_one,
    reader_of,
    said_by_notes,
    texts,
)

# ChatGPT


def test_a_tree_is_kept_whole_and_stands_where_the_person_saw_it() -> None:
    conversation = chatgpt(
        chatgpt_node("root", None, children=["s"]),
        chatgpt_node(
            "s", "root", "system", [""], children=["u"], metadata={"is_visually_hidden_from_conversation": True}
        ),
        chatgpt_node("u", "s", "user", ["The deploy failed."], children=["a1", "a2"]),
        chatgpt_node("a1", "u", "assistant", ["Retry."], children=[]),
        chatgpt_node("a2", "u", "assistant", ["Wait, then retry."], children=["u2"]),
        chatgpt_node("u2", "a2", "user", ["Thanks."], children=[]),
        current_node="a1",
    )
    found = read_one(document([conversation]))
    assert reader_of(document([conversation])).name == "chatgpt"
    assert (found.client, found.title, found.model) == ("ChatGPT", "Deploy timeout", "gpt-5")
    assert texts(path_of(found)) == ["The deploy failed.", "Retry."]
    assert len(found.nodes) == 4, "the other branch is there, the empty root and instruction are not"
    assert found.created_at is not None
    assert found.created_at.isoformat() == "2024-04-05T19:34:38.500000+00:00"


def test_tools_have_no_ids_and_pair_all_the_same() -> None:
    code = {"content_type": "code", "language": "python", "text": "print(2 + 2)"}
    output = {"content_type": "execution_output", "text": "4"}
    found = read_one(
        document(
            [
                chatgpt(
                    chatgpt_node("u", None, "user", ["2 + 2?"], children=["c"]),
                    chatgpt_node("c", "u", "assistant", content=code, recipient="python", children=["t"]),
                    chatgpt_node("t", "c", "tool", content=output, name="python", children=["t2"]),
                    chatgpt_node("t2", "t", "tool", ["(more)"], name="python", children=["a"]),
                    chatgpt_node("a", "t2", "assistant", ["4."]),
                )
            ]
        )
    )
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    _, call, results, _ = path
    assert isinstance(call, ModelOutput)
    assert isinstance(results, ToolResults)
    assert (call.tool_requests[0].name, call.tool_requests[0].arguments) == ("python", '{"input":"print(2 + 2)"}')
    assert [result.call_id for result in results.results] == [call.tool_requests[0].call_id]
    assert results.results[0].text == "4\n\n(more)"


def test_thoughts_belong_to_the_answer_that_they_led_to() -> None:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Sum", "content": "Two and two."}]}
    recap = {"content_type": "reasoning_recap", "content": "Thought for 3 seconds"}
    found = read_one(
        document(
            [
                chatgpt(
                    chatgpt_node("u", None, "user", ["2 + 2?"], children=["t"]),
                    chatgpt_node("t", "u", "assistant", content=thoughts, children=["r"]),
                    chatgpt_node("r", "t", "assistant", content=recap, children=["a"]),
                    chatgpt_node("a", "r", "assistant", ["4."]),
                )
            ]
        )
    )
    answers = [entry for entry in path_of(found) if isinstance(entry, ModelOutput)]
    assert [type(part) for answer in answers for part in answer.parts if not isinstance(part, Text)] == [Reasoning]


def test_pictures_are_taken_from_beside_the_list_or_named_as_missing() -> None:
    def companion(name: str) -> tuple[str, bytes] | None:
        return ("file-AbC-cat.png", PNG) if name == "file-AbC" else None

    parts: list[Any] = [
        {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-AbC", "size_bytes": 48},
        {"content_type": "image_asset_pointer", "asset_pointer": "sediment://file_gone", "size_bytes": 99},
        "What is this?",
    ]
    attached = {"attachments": [{"id": "file-AbC", "name": "cat.png"}, {"id": "file-doc", "name": "report.pdf"}]}
    content = {"content_type": "multimodal_text", "parts": parts}
    found = read_one(
        document([chatgpt(chatgpt_node("u", None, "user", content=content, metadata=attached))]), companion=companion
    )
    entry = path_of(found)[0]
    assert isinstance(entry, ModelInput)
    assert [(media.name, media.media_type, bool(media.sha256)) for media in entry.attachments] == [
        ("file-AbC-cat.png", "image/png", True),
        ("file_gone", "application/octet-stream", False),
        ("report.pdf", "application/octet-stream", False),
    ]
    assert found.blobs == {entry.attachments[0].sha256: PNG}
    assert "does not contain a picture" in said_by_notes(found, "lost")


def test_hidden_messages_are_internal_and_own_instructions_are_instructions() -> None:
    wishes = {"content_type": "user_editable_context", "user_profile": "I am Ada.", "user_instructions": "Be brief."}
    hidden = {"is_visually_hidden_from_conversation": True}
    found = read_one(
        document(
            [
                chatgpt(
                    chatgpt_node("w", None, "user", content=wishes, metadata=hidden, children=["h"]),
                    chatgpt_node("h", "w", "user", ["Original custom instructions"], metadata=hidden, children=["u"]),
                    chatgpt_node("u", "h", "user", ["Hi."]),
                )
            ]
        )
    )
    path = path_of(found)
    assert isinstance(path[0], SystemInstructionSet)
    assert path[0].instruction == "I am Ada.\n\nBe brief."
    assert [entry.is_internal for entry in path] == [False, True, False]


def test_one_bad_conversation_does_not_take_the_others_with_it() -> None:
    good = chatgpt(chatgpt_node("u", None, "user", ["Hi."]))
    empty = chatgpt(chatgpt_node("root", None), title="Empty", id="e", conversation_id="e")
    nameless = chatgpt(chatgpt_node("u", None, "user", ["Hi."]), id=None, conversation_id=None, title="Nameless")
    found = read_all(document([empty, "rubbish", nameless, good]))
    assert [type(one) for one in found] == [
        UnreadableConversation,
        UnreadableConversation,
        UnreadableConversation,
        Conversation,
    ]
    assert [(one.title, one.why) for one in found if isinstance(one, UnreadableConversation)] == [
        ("Empty", "this conversation has no messages"),
        ("item 2", "this is not an object"),
        ("Nameless", "this conversation has no id"),
    ]


def test_parents_that_are_missing_stand_further_down_or_lead_in_a_circle_are_borne() -> None:
    found = read_one(
        document(
            [
                chatgpt(
                    chatgpt_node("late", "u", "assistant", ["Hello."]),
                    chatgpt_node("u", "gone", "user", ["Hi."]),
                    chatgpt_node("x", "y", "user", ["round"]),
                    chatgpt_node("y", "x", "assistant", ["and round"]),
                    current_node="late",
                )
            ]
        )
    )
    assert texts(path_of(found))[1:] == ["Hi.", "Hello."]
    assert sorted(texts(node.entry for node in found.nodes if node.entry.kind.startswith("model"))) == [
        "Hello.",
        "Hi.",
        "and round",
        "round",
    ]


# Claude.ai


def claude_ai(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {
        "uuid": "ca000001-0000-4000-8000-000000000001",
        "name": "A poem",
        "summary": "",
        "created_at": "2026-01-02T03:04:05.000000Z",
        "updated_at": "2026-01-02T03:05:00.000000Z",
        "account": {"uuid": "acc"},
        "chat_messages": list(messages),
    } | fields


def spoken(
    uuid: str, sender: str, text: str, content: list[dict[str, Any]] | None = None, **fields: Any
) -> dict[str, Any]:
    stamps = {"start_timestamp": "2026-01-02T03:04:05Z", "stop_timestamp": "2026-01-02T03:04:06Z", "flags": None}
    blocks = [{"type": "text", "text": text}] if content is None else content
    return {
        "uuid": uuid,
        "sender": sender,
        "text": text,
        "content": [stamps | block for block in blocks],
        "attachments": [],
        "files": [],
        "created_at": "2026-01-02T03:04:05.000000Z",
        "updated_at": "2026-01-02T03:04:05.000000Z",
    } | fields


def test_text_repeats_content_and_counts_only_where_there_is_none() -> None:
    content = document([claude_ai(spoken("m1", "human", "A poem?"), spoken("m2", "assistant", "Roses.", []))])
    found = read_one(content)
    assert reader_of(content).name == "claude-ai"
    assert (found.client, found.title) == ("Claude.ai", "A poem")
    assert texts(path_of(found)) == ["A poem?", "Roses."]
    assert "name the model" in said_by_notes(found, "lost")


def test_tools_in_one_message_become_calls_results_and_what_was_said_after() -> None:
    blocks: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "Search."},
        {"type": "text", "text": "I look."},
        {"type": "tool_use", "name": "web_search", "input": {"q": "roses"}},
        {"type": "tool_result", "name": "web_search", "content": [{"type": "text", "text": "red"}], "is_error": False},
        {"type": "text", "text": "They are red."},
    ]
    found = read_one(document([claude_ai(spoken("m1", "human", "?"), spoken("m2", "assistant", "I look.", blocks))]))
    path = path_of(found)
    assert [type(entry) for entry in path] == [ModelInput, ModelOutput, ToolResults, ModelOutput]
    _, call, results, _ = path
    assert isinstance(call, ModelOutput)
    assert isinstance(results, ToolResults)
    assert [result.call_id for result in results.results] == [call.tool_requests[0].call_id]
    assert results.results[0].name == "web_search"
    assert "paired by order" in said_by_notes(found, "repaired")


def test_what_was_extracted_from_attachments_is_kept_and_files_are_named() -> None:
    attachment = {"file_name": "notes.txt", "file_size": 5, "file_type": "text/plain", "extracted_content": "hello"}
    bare = {"file_name": "empty.dat", "file_size": 0, "file_type": "", "extracted_content": ""}
    message = spoken("m1", "human", "Read it.", attachments=[attachment, bare], files=[{"file_name": "cat.png"}])
    entry = path_of(read_one(document([claude_ai(message)])))[0]
    assert isinstance(entry, ModelInput)
    assert [type(part) for part in entry.parts] == [Text, OtherPart, Media, Text]
    assert entry.text == "[notes.txt]\n\nhello\n\nRead it."


def test_newer_exports_have_branches() -> None:
    root = "00000000-0000-4000-8000-000000000000"
    found = read_one(
        document(
            [
                claude_ai(
                    spoken("m1", "human", "Hi.", parent_message_uuid=root),
                    spoken("m2", "assistant", "Hello.", parent_message_uuid="m1"),
                    spoken("m3", "assistant", "Good day.", parent_message_uuid="m1"),
                )
            ]
        )
    )
    assert texts(path_of(found)) == ["Hi.", "Good day."]
    assert len(found.nodes) == 3


def test_empty_conversations_are_named_and_left_out() -> None:
    empty, good = claude_ai(name="Nothing", uuid="e"), claude_ai(spoken("m1", "human", "Hi."))
    found = read_all(document([empty, good]))
    assert isinstance(found[0], UnreadableConversation)
    assert found[0].title == "Nothing"
    assert isinstance(found[1], Conversation)
