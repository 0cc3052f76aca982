"""Encoder of requests to OpenAI Chat Completions. docs/internals/dialects.md has the rules of messages."""

from collections.abc import Iterable

from history.context.values import Context, ContextEntry
from history.dialects.json_access import items, without_empty
from history.dialects.openai_chat.reply_reader import DIALECT
from history.dialects.openai_common import OpenAIRequestEncoder
from history.dialects.request_encoder import EncodedEntry, LoadedMedia, base64_of, data_url, detail_of
from history.dialects.types import LossCode, join_texts
from history.entries import JsonDict, Media, Part, Reasoning, Text, ToolRequest, text_of

SOUNDS = {"audio/wav": "wav", "audio/x-wav": "wav", "audio/mpeg": "mp3", "audio/mp3": "mp3"}


class ChatRequestEncoder(OpenAIRequestEncoder):
    dialect = DIALECT
    id_limit = 40
    nests_fields = True

    def adapted(self, context: Context) -> Context:
        return self.with_system_role(context)

    def request(self, context: Context, encoded: list[EncodedEntry]) -> tuple[str, JsonDict]:
        options = self.options
        limit = "max_tokens" if self.switches.legacy_max_tokens else "max_completion_tokens"
        with_usage = options.stream and self.switches.stream_usage
        body = {
            "model": options.model,
            "messages": self.messages(context.system, encoded),
            **self.tools(context),
            **without_empty(response_format=self.answer_form()),
            **without_empty(**{limit: options.max_tokens}),
            **without_empty(temperature=options.temperature, top_p=options.top_p, stop=list(options.stop)),
            **without_empty(reasoning_effort=options.reasoning_effort),
            **({"stream": True} if options.stream else {}),
            **({"stream_options": {"include_usage": True}} if with_usage else {}),
        }
        return "/chat/completions", body  # the base URL of OpenAI's SDK ends in /v1

    def messages(self, system: str, encoded: list[EncodedEntry]) -> list[JsonDict]:
        messages = [message for _, messages in encoded for message in messages]
        if system:
            messages.insert(0, {"role": self.switches.system_role, "content": system})
        return _alternating(messages) if self.switches.alternate_roles else messages

    def message(self, role: str, blocks: list[JsonDict]) -> JsonDict:
        """A single text is sent as a string, which every server accepts."""
        is_text = len(blocks) == 1 and blocks[0]["type"] == "text"
        return {"role": role, "content": blocks[0]["text"] if is_text else blocks}

    def instruction(self, entry: ContextEntry) -> list[JsonDict]:
        role, text = self.role_and_text(entry)
        return [{"role": role, "content": text}] if text else []

    def input(self, entry: ContextEntry) -> list[JsonDict]:
        blocks = self.blocks(self.input_parts(entry))
        return [self.message("user", blocks)] if blocks else []

    def answer(self, entry: ContextEntry) -> list[JsonDict]:
        """A message has one text and one list of calls: text after a call comes before it."""
        calls = []
        for call in entry.tool_requests:
            function = self.wrapped("function", {"name": call.name, "arguments": call.arguments})
            calls.append({"id": self.call_id(call.call_id), **function})
        content = text_of(entry.parts)
        thinking = [self.thinking(part) for part in entry.parts if isinstance(part, Reasoning)]
        self.leave_out(entry.parts, except_for=(Reasoning, ToolRequest))
        kinds = [type(part) for part in entry.parts]
        if ToolRequest in kinds and Text in kinds[kinds.index(ToolRequest) :]:
            self.lose(LossCode.PARTS_REORDERED)
        extra = without_empty(reasoning_content=join_texts(thinking), tool_calls=calls)
        return [{"role": "assistant", "content": content or None, **extra}] if content or calls else []

    def thinking(self, part: Reasoning) -> str:
        """Some servers require their own thinking as plain text; OpenAI accepts none."""
        if self.switches.reasoning_content and part.provider == self.provider:
            return part.text
        self.lose(LossCode.REASONING_NOT_CARRIED)
        return ""

    def results(self, entry: ContextEntry) -> list[JsonDict]:
        moved: list[JsonDict] = []
        messages = []
        for result in entry.results:
            self.lose_status(result)
            self.leave_out(result.parts, except_for=(Media,))
            call_id = self.call_id(result.call_id)
            messages.append({"role": "tool", "tool_call_id": call_id, "content": self.result_text(result)})
            moved += self.blocks(self.moved_media(result))
        if messages and (screen := self.live_screen(entry)):
            messages[-1]["content"] = join_texts([messages[-1]["content"], screen])
        return [*messages, {"role": "user", "content": moved}] if moved else messages

    def blocks(self, parts: Iterable[Part]) -> list[JsonDict]:
        return [self.media(*part) if isinstance(part, LoadedMedia) else part for part in self.sendable(parts)]

    def media(self, media: Media, content: bytes | None) -> JsonDict:
        if media.media_type.startswith("image/"):
            url = media.url if content is None else data_url(media.media_type, content)
            detail = detail_of(media)
            return {"type": "image_url", "image_url": {"url": url, **({"detail": detail} if detail != "auto" else {})}}
        if content is None:
            return self.note(media, LossCode.MEDIA_UNAVAILABLE)
        if media.media_type in SOUNDS:
            sound = {"data": base64_of(content), "format": SOUNDS[media.media_type]}
            return {"type": "input_audio", "input_audio": sound}
        if media.media_type == "application/pdf":
            file = {"filename": media.name or "document.pdf", "file_data": data_url(media.media_type, content)}
            return {"type": "file", "file": file}
        if media.media_type.startswith("text/"):
            return self.text_file(media, content)
        return self.note(media)


def _alternating(messages: list[JsonDict]) -> list[JsonDict]:
    """Merge consecutive messages of one role, for servers whose templates require turns."""
    merged: list[JsonDict] = []
    for message in messages:
        last = merged[-1] if merged else {}
        if message["role"] == last.get("role") == "user" or (
            message["role"] == last.get("role") == "assistant" and "tool_calls" not in last
        ):
            merged[-1] = {**last, **message, "content": _join_content(last["content"], message["content"])}
        else:
            merged.append(message)
    return merged


def _join_content(before: object, after: object) -> object:
    if isinstance(before, str) and isinstance(after, str | None):
        return join_texts([before, after or ""])
    return [*_as_blocks(before), *_as_blocks(after)]


def _as_blocks(content: object) -> list[JsonDict]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else list(items(content))
