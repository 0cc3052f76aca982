"""OpenAI Chat Completions and compatible servers: one message per result, arguments as JSON text."""

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from history.dialects.dialect import Dialect
from history.dialects.json_access import obj
from history.dialects.openai_chat.reply_reader import ChatReplyReader
from history.dialects.openai_chat.reply_writer import ChatReplyWriter
from history.dialects.openai_chat.request_decoder import ChatRequestDecoder
from history.dialects.openai_chat.request_encoder import ChatRequestEncoder
from history.dialects.openai_common import OpenAIApi, usage_from_chat, usage_from_responses
from history.dialects.references import Audio, Content, IssuedIds, ObjectWithId
from history.entries import JsonObject, Usage


class _Message(msgspec.Struct):
    content: Content = None
    audio: Audio | None = None


class _Spoken(msgspec.Struct):
    audio: ObjectWithId | None = None


class _Choice(msgspec.Struct):
    message: _Spoken | None = None
    delta: _Spoken | None = None


class _Reply(msgspec.Struct):
    choices: list[_Choice] | None = None


def _audio_ids(reply: _Reply) -> Iterator[str | None]:
    for choice in reply.choices or ():
        for spoken in (choice.message, choice.delta):
            if spoken is not None and spoken.audio is not None:
                yield spoken.audio.id


AUDIO_IDS = IssuedIds(b'"audio"', msgspec.json.Decoder(_Reply), _audio_ids)


class ChatApi(OpenAIApi):
    paths = {
        "/v1/chat/completions": "chat",
        "/v1/embeddings": "other",
        "/v1/moderations": "other",
        "/v1/audio/speech": "other",
        "/v1/audio/transcriptions": "other",
        "/v1/audio/translations": "other",
        "/v1/images/generations": "other",
        "/v1/images/edits": "other",
        "/v1/images/variations": "other",
    }
    request_fields = {"messages": list[_Message], "audio": Any}
    reply_id_prefix = "chatcmpl-"
    has_single_text = True
    read_usage = staticmethod(usage_from_chat)
    final_event = re.compile(rb'"finish_reason":\s*"')
    probe_paths = {"openai-responses": "/responses"}

    def wants_stream_usage(self, request: JsonObject) -> bool:
        return bool(obj(request.get("stream_options")).get("include_usage"))

    def issued_ids(self, request: JsonObject) -> IssuedIds | None:
        return AUDIO_IDS if request.get("audio") else None

    def read_other_usage(self, counts: JsonObject) -> Usage:
        """Images and audio have the names of Responses; some servers send only a total for embeddings."""
        if "input_tokens" in counts:
            return usage_from_responses(counts)
        return usage_from_chat({"prompt_tokens": counts.get("total_tokens"), **counts})


DIALECT = Dialect(ChatApi(), ChatRequestEncoder, ChatRequestDecoder, ChatReplyReader, ChatReplyWriter)
