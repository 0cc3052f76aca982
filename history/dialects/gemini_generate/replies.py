"""Replies of Gemini and Google's errors, both ways. A chunk of a stream has the shape of a whole reply."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from history.answers.assembly import end_reason
from history.answers.events import (
    Beside,
    Ended,
    EndReason,
    ErrorKind,
    Event,
    Failed,
    MediaPiece,
    OtherPiece,
    Piece,
    ReasoningPiece,
    Started,
    TextPiece,
    ToolCallPiece,
    UsageReported,
)
from history.dialects.encoder import INVALID_JSON, arguments_of
from history.dialects.failures import KIND_OF_STATUS, STATUS_OF_KIND, no_reason, read_body, refined
from history.dialects.json_access import count, obj, objs, string, whole
from history.dialects.request_decoder import arguments_text, as_other, call_id_for, from_base64
from history.dialects.streaming import PartNames
from history.entries import ModelOutput, OtherPart, Part, Reasoning, Text, ToolDefinition, ToolRequest, Usage, thaw

DIALECT = "gemini-generate"
PROVIDER = "gemini"

Json = dict[str, Any]

REASONS: dict[str, EndReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        "content_filter",
    ),
}
WORDS: dict[EndReason, str] = {
    "stop": "STOP",
    "tool_use": "STOP",
    "length": "MAX_TOKENS",
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "STOP",
    "other": "OTHER",
}
ERRORS: dict[ErrorKind, str] = {
    "invalid_request": "INVALID_ARGUMENT",
    "authentication": "UNAUTHENTICATED",
    "billing": "FAILED_PRECONDITION",
    "permission": "PERMISSION_DENIED",
    "not_found": "NOT_FOUND",
    "conflict": "ABORTED",
    "too_large": "INVALID_ARGUMENT",
    "context_length": "INVALID_ARGUMENT",
    "rate_limit": "RESOURCE_EXHAUSTED",
    "server": "INTERNAL",
    "overloaded": "UNAVAILABLE",
    "timeout": "DEADLINE_EXCEEDED",
}
KINDS: dict[str, ErrorKind] = {word: kind for kind, word in ERRORS.items()} | {"INVALID_ARGUMENT": "invalid_request"}


# Usage: Gemini's promptTokenCount has the cached ones in; its candidatesTokenCount leaves the thoughts out.


def usage_from(raw: Mapping[str, Any]) -> Usage:
    thoughts = count(raw.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=count(raw.get("promptTokenCount")) + count(raw.get("toolUsePromptTokenCount")),
        output_tokens=count(raw.get("candidatesTokenCount")) + thoughts,
        cache_read_tokens=count(raw.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
        raw=raw,
    )


def usage_to(usage: Usage | None) -> Json:
    usage = usage or Usage()
    return {
        "promptTokenCount": usage.input_tokens,
        "cachedContentTokenCount": usage.cache_read_tokens,
        "candidatesTokenCount": max(usage.output_tokens - usage.reasoning_tokens, 0),
        "thoughtsTokenCount": usage.reasoning_tokens,
        "totalTokenCount": usage.input_tokens + usage.output_tokens,
    }


# Replies.


class ReplyReader:
    """Reads one reply, or the chunks of one."""

    def __init__(self, provider: str = "") -> None:
        self._provider = provider
        self._names = PartNames()
        self._call_ids: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._has_started = False
        self._first: int | None = None
        self._beside: dict[int, ReplyReader] = {}

    def read(self, chunk: Mapping[str, Any]) -> Iterator[Event]:
        # The internal API of Google's own tools puts the reply one level down.
        chunk = obj(chunk.get("response")) or chunk
        if "error" in chunk:
            yield decode_error(0, chunk)
            return
        if not self._has_started and (chunk.get("modelVersion") or chunk.get("responseId")):
            self._has_started = True
            model, request_id = string(chunk.get("modelVersion")), string(chunk.get("responseId"))
            yield Started(model=model, request_id=request_id, provider=self._provider)
        candidate, others = self._candidates(chunk)
        yield from self._parts(candidate)
        if usage := obj(chunk.get("usageMetadata")):
            yield UsageReported(usage=usage_from(usage))
        yield from self._end(candidate, obj(chunk.get("promptFeedback")))
        for index, other in others.items():
            reader = self._beside.get(index) or self._beside.setdefault(index, ReplyReader())
            events = (*reader._parts(other), *reader._end(other, {}))
            yield from (Beside(answer=index, event=event) for event in events)

    def _candidates(self, chunk: Mapping[str, Any]) -> tuple[Mapping[str, Any], dict[int, Mapping[str, Any]]]:
        """The answer, and further ones: only who asked for several (`candidateCount`) gets any."""
        found: dict[int, Mapping[str, Any]] = {}
        for place, candidate in enumerate(objs(chunk.get("candidates"))):
            index = candidate.get("index")
            found[index if isinstance(index, int) else place] = candidate
        if self._first is None and found:
            self._first = next(iter(found))
        first = found.pop(self._first, {}) if self._first is not None else {}
        return first, found

    def _parts(self, candidate: Mapping[str, Any]) -> Iterator[Piece]:
        for part in objs(obj(candidate.get("content")).get("parts")):
            yield from self._part(part)

    def _part(self, part: Mapping[str, Any]) -> Iterator[Piece]:
        """A signature is a part of its own: after the text it came with, so as not to cut that, else before it."""
        signature, text = string(part.get("thoughtSignature")), part.get("text")
        if part.get("thought") is True:
            yield ReasoningPiece(part=self._names.same("thought"), text=string(text), signature=signature)
            return
        if isinstance(text, str) and text:
            yield TextPiece(part=self._names.same("text"), text=text)
        if signature:
            yield ReasoningPiece(part=self._names.new("signature"), signature=signature)
        if isinstance(text, str):
            return
        if call := obj(part.get("functionCall")):
            yield self._call(call)
        elif (content := from_base64(obj(part.get("inlineData")).get("data"))) is not None:
            media_type = string(obj(part.get("inlineData")).get("mimeType"))
            yield MediaPiece(part=self._names.new("media"), media_type=media_type, data=content)
        elif any(name != "thoughtSignature" for name in part):
            yield OtherPiece(part=self._names.new("other"), data=as_other(part))

    def _call(self, call: Mapping[str, Any]) -> ToolCallPiece:
        name, arguments = string(call.get("name")), arguments_text(call.get("args"))
        call_id = string(call.get("id")) or call_id_for(name, arguments, taken=self._call_ids, repeats=self._repeats)
        self._call_ids.add(call_id)
        return ToolCallPiece(part=self._names.new("call"), call_id=call_id, name=name, arguments=arguments)

    def _end(self, candidate: Mapping[str, Any], feedback: Mapping[str, Any]) -> Iterator[Ended]:
        if blocked := string(feedback.get("blockReason")):
            yield Ended(reason="content_filter", raw_reason=blocked)
        elif word := string(candidate.get("finishReason")):
            reason = REASONS.get(word, "other")
            yield Ended(reason="tool_use" if reason == "stop" and self._call_ids else reason, raw_reason=word)


def decode_reply(body: bytes | Mapping[str, Any]) -> list[Event]:
    return list(ReplyReader().read(read_body(body)))


def encode_reply(output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()) -> Json:
    reason = end_reason(output.end_reason or "stop")
    return chunk(
        reply_id=reply_id, model=output.model, parts=parts_of(output.parts), reason=WORDS[reason], usage=output.usage
    )


def chunk(*, reply_id: str, model: str, parts: list[Json], reason: str = "", usage: Usage | None = None) -> Json:
    candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
    if reason:
        candidate["finishReason"] = reason
    counts = {"usageMetadata": usage_to(usage)} if usage else {}
    return {"candidates": [candidate], **counts, "modelVersion": model, "responseId": reply_id}


def parts_of(parts: tuple[Part, ...]) -> list[Json]:
    written: list[Json] = []
    signature = ""
    for part in parts:
        if isinstance(part, Reasoning):
            written += signed(signature)
            written += [{"text": part.text, "thought": True}] if part.text else []
            signature = portable(part.signature)
        elif isinstance(part, ToolRequest):
            call = call_part(part.call_id, part.name, part.arguments)
            written.append({**call, "thoughtSignature": signature} if signature else call)
            signature = ""
        elif found := _part(part):
            written += [*signed(signature), found]
            signature = ""
    return written + signed(signature)


def portable(signature: str) -> str:
    """Gemini's signatures are bytes in base64; its clients break at any other."""
    return "" if from_base64(signature) is None else signature


def signed(signature: str) -> list[Json]:
    """A signature that goes with no call: Gemini itself sends such a one with an empty text."""
    return [{"text": "", "thoughtSignature": signature}] if signature else []


def _part(part: Part) -> Json | None:
    match part:
        case Text():
            return {"text": part.text} if part.text else None
        case OtherPart(data=data) if "executableCode" in data or "codeExecutionResult" in data:
            return dict(thaw(data))
        case _:
            return None


def call_part(call_id: str, name: str, arguments: str) -> Json:
    given = arguments_of(arguments)
    args = {INVALID_JSON: arguments} if given is None else given
    return {"functionCall": {"id": call_id, "name": name, "args": args}}


# Errors.


def decode_error(status: int, body: bytes | Mapping[str, Any]) -> Failed:
    found = read_body(body)
    error = obj(found.get("error"))
    status = status or whole(error.get("code")) or 0
    code = string(error.get("status"))
    message = string(error.get("message")) or string(found.get("error")) or no_reason(status)
    kind = refined(KINDS.get(code) or KIND_OF_STATUS.get(status, "server"), message)
    details = objs(error.get("details"))
    # A wrong key is an invalid argument to Google; only the details say which.
    if any(detail.get("reason") == "API_KEY_INVALID" for detail in details):
        kind = "authentication"
    return Failed(message=message, code=code, kind=kind, status=status, retry_after=_retry_after(details), raw=found)


def _retry_after(details: list[Mapping[str, Any]]) -> float | None:
    """Google says in the body, and in no header, when to come again: ``"retryDelay": "34.07s"``."""
    told = next((delay for detail in details if (delay := string(detail.get("retryDelay")))), "")
    try:
        seconds = float(told.removesuffix("s"))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def encode_error(error: Failed) -> tuple[int, Json]:
    status = STATUS_OF_KIND[error.kind]
    return status, {"error": {"code": status, "message": error.message, "status": ERRORS[error.kind]}}
