"""Files as other products write them, with the field names that they have there."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from history.entries import Entry
from history.formats.base import Conversation, UnreadableConversation
from history.formats.conversations import find_last_place
from history.formats.readers import Reader, reader_for
from history.formats.reports import note_text
from history.formats.sources import Source, no_companion

PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


def lines(*records: Any) -> bytes:
    return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()


def document(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=2).encode()


def zipped(files: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


def source_of(
    content: bytes, name: str = "file.json", companion: Callable[[str], tuple[str, bytes] | None] = no_companion
) -> Source:
    return Source(name, lambda: io.BytesIO(content), companion)


def reader_of(content: bytes) -> Reader:
    reader = reader_for(source_of(content).sample)
    assert reader is not None, "no reader wants it"
    return reader


def read_all(content: bytes, name: str = "file.json", **fields: Any) -> list[Conversation | UnreadableConversation]:
    return list(reader_of(content).read(source_of(content, name, **fields)))


def read_one(content: bytes, name: str = "file.json", **fields: Any) -> Conversation:
    found = read_all(content, name, **fields)
    assert len(found) == 1, found
    assert isinstance(found[0], Conversation), found
    return found[0]


def path_of(conversation: Conversation) -> list[Entry]:
    """From the start to the leaf."""
    place = find_last_place(conversation.nodes) if conversation.leaf is None else conversation.leaf
    entries: list[Entry] = []
    while place is not None:
        entries.append(conversation.nodes[place].entry)
        place = conversation.nodes[place].parent
    return entries[::-1]


def texts(entries: Iterable[Entry]) -> list[str]:
    return [entry.text for entry in entries]


def said_by_notes(conversation: Conversation, level: str) -> str:
    return "\n".join(note_text(note) for note in conversation.notes if note.level == level)


# Claude Code


def claude_code(kind: str, uuid: str, parent: str | None, content: Any = None, **fields: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": kind, "content": content}
    if kind == "assistant":
        message |= {"id": fields.pop("message_id", f"msg_{uuid}"), "type": "message", "model": "claude-opus-4-5"}
        message["usage"] = fields.pop("usage", {"input_tokens": 10, "output_tokens": 5, "cache_read_input_tokens": 90})
        message["stop_reason"] = fields.pop("stop_reason", "end_turn")
    record = {
        "parentUuid": parent,
        "isSidechain": False,
        "userType": "external",
        "cwd": "/work/site",
        "sessionId": "5e551017-0000-4000-8000-000000000001",
        "version": "2.1.90",
        "gitBranch": "main",
        "type": kind,
        "uuid": uuid,
        "timestamp": "2026-03-01T10:00:00.000Z",
    }
    return record | ({"message": message} if content is not None else {}) | fields


def tool_use(call_id: str, name: str = "Bash", **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


def tool_result(call_id: str, text: str = "done", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, **fields}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


# Codex


def rollout(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": "2026-04-25T10:00:00.000Z", "type": kind, "payload": payload}


def codex_meta(**fields: Any) -> dict[str, Any]:
    return rollout(
        "session_meta",
        **{"id": "019e-codex", "timestamp": "2026-04-25T09:59:00Z", "cwd": "/repo", "originator": "codex_cli_rs"},
        **{"cli_version": "0.137.0", "source": "cli", "model_provider": "openai", "git": {"branch": "main"}},
        **fields,
    )


def codex_said(role: str, words: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return rollout("response_item", type="message", role=role, content=[{"type": kind, "text": words}])


# ChatGPT


def chatgpt_node(
    node: str, parent: str | None, role: str = "", parts: Any = None, *, children: Iterable[str] = (), **fields: Any
) -> dict[str, Any]:
    if not role:
        return {"id": node, "parent": parent, "children": list(children), "message": None}
    content = fields.pop("content", {"content_type": "text", "parts": parts})
    message = {
        "id": node,
        "author": {"role": role, "name": fields.pop("name", None), "metadata": {}},
        "create_time": fields.pop("create_time", 1712345679.5),
        "content": content,
        "status": "finished_successfully",
        "end_turn": True,
        "weight": 1.0,
        "metadata": {"model_slug": "gpt-5"} | fields.pop("metadata", {}),
        "recipient": fields.pop("recipient", "all"),
        "channel": None,
    }
    return {"id": node, "parent": parent, "children": list(children), "message": message | fields}


def chatgpt(*nodes: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    found = {node["id"]: node for node in nodes}
    return {
        "title": "Deploy timeout",
        "create_time": 1712345678.5,
        "update_time": 1712349999.0,
        "mapping": found,
        "current_node": nodes[-1]["id"],
        "conversation_id": "c0000001-0000-4000-8000-000000000001",
        "id": "c0000001-0000-4000-8000-000000000001",
        "default_model_slug": "gpt-5",
        "is_archived": False,
        "moderation_results": [],
    } | fields
