"""A request that a client of OpenAI Chat Completions sent, read into entries. The older ``functions`` are read, too."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from history.dialects.json_access import items, number, obj, objs, string, truth, whole
from history.dialects.openai_chat.replies import DIALECT, PROVIDER
from history.dialects.openai_common import CHOICES, OpenAIReading, read_form, read_tool, session_hints
from history.dialects.request_decoder import arguments_text, check_request, extra_of, from_base64, other, unread_choice
from history.dialects.types import CallOptions, DecodedRequest, joined
from history.entries import Part, Reasoning, Text, ToolRequest

KNOWN = (
    *("model", "messages", "tools", "functions", "tool_choice", "function_call", "max_tokens", "temperature", "top_p"),
    *("max_completion_tokens", "stop", "stream", "reasoning_effort"),
)
HINTS = ("user", "safety_identifier", "prompt_cache_key", "session_id", "conversation_id", "litellm_session_id")
SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg"}


def decode_request(body: Mapping[str, Any], *, provider: str = "", at: datetime | None = None) -> DecodedRequest:
    body = check_request(body, needs=("messages",))
    reading = _Reading(provider=provider or PROVIDER, at=at)
    for message in reading.each(body.get("messages")):
        reading.message(message)
    options = _options(body)
    return reading.decoded(
        body,
        known=KNOWN,
        system=joined(reading.instructions),
        tools=tuple(
            read_tool(tool, dialect=DIALECT) for tool in (*objs(body.get("tools")), *objs(body.get("functions")))
        ),
        model=string(body.get("model")),
        options=options,
        extra=unread_choice(body, options),
        read=frozenset({"response_format"} if options.form or _is_any(body.get("response_format")) else ()),
        session_hints=session_hints(body, HINTS),
    )


class _Reading(OpenAIReading):
    def message(self, message: Mapping[str, Any]) -> None:
        match message.get("role"):
            case "assistant":
                self.answer(self.said(message))
            case "system" | "developer":
                self.instruction(self.parts(message.get("content")))
            case "tool" | "function":
                given = self.parts(message.get("content"))
                call_id, name = string(message.get("tool_call_id")), string(message.get("name"))
                self.find([self.result(call_id=call_id, name=name, parts=given)])
            case _:
                self.hear(self.parts(message.get("content")), **_named(message))

    def said(self, message: Mapping[str, Any]) -> list[Part]:
        parts: list[Part] = []
        if thinking := string(message.get("reasoning_content")) or string(message.get("reasoning")):
            parts.append(Reasoning(text=thinking, provider=self.provider))
        parts += self.parts(message.get("content"))
        if refusal := string(message.get("refusal")):
            parts.append(Text(text=refusal))
        parts += [self.read_call(call) for call in objs(message.get("tool_calls"))]
        if legacy := obj(message.get("function_call")):
            parts.append(self.read_call({"function": legacy}))
        return parts

    def read_call(self, call: Mapping[str, Any]) -> ToolRequest:
        """A function, or a tool that takes plain text (``custom``)."""
        function = obj(call.get("function")) or obj(call.get("custom"))
        given = function.get("arguments", function.get("input"))
        arguments = arguments_text({"input": given} if "custom" in call else given)
        return self.call(call_id=string(call.get("id")), name=string(function.get("name")), arguments=arguments)

    def part(self, part: Any) -> Part:
        if isinstance(part, str):
            return Text(text=part)
        found = obj(part)
        match found.get("type"):
            case "text" | "input_text" | "output_text" | "refusal":
                text = found.get("text", found.get("refusal"))
                return Text(text=text, extra=extra_of(found, "text")) if isinstance(text, str) else other(part)
            case "image_url":
                image = found.get("image_url")
                url = string(obj(image).get("url")) or string(image)
                extra = extra_of(found, "image_url") | extra_of(obj(image), "url")
                return self.media(url, media_type="image/*", **extra) or other(part)
            case "input_audio":
                sound = obj(found.get("input_audio"))
                content = from_base64(sound.get("data"))
                media_type = SOUNDS.get(string(sound.get("format")), "audio/*")
                return other(part) if content is None else self.keep(content, media_type=media_type)
            case "file":
                file = obj(found.get("file"))
                name, data = string(file.get("filename")), string(file.get("file_data"))
                return self.file(data, media_type="application/pdf", name=name) or other(part)
            case _:
                return other(part)


def _is_any(form: Any) -> bool:
    return obj(form).get("type") == "text"


def _named(message: Mapping[str, Any]) -> dict[str, str]:
    return {"name": name} if (name := string(message.get("name"))) else {}


def _options(body: Mapping[str, Any]) -> CallOptions:
    choice = body.get("tool_choice", body.get("function_call"))
    chosen = obj(choice)
    stop = body.get("stop")
    limit = whole(body.get("max_completion_tokens"))
    return CallOptions(
        model=string(body.get("model")),
        max_tokens=whole(body.get("max_tokens")) if limit is None else limit,
        temperature=number(body.get("temperature")),
        top_p=number(body.get("top_p")),
        stop=(stop,) if isinstance(stop, str) else tuple(string(word) for word in items(stop)),
        stream=body.get("stream") is True,
        tool_choice=CHOICES.get(string(choice), ""),
        tool_name=string((obj(chosen.get("function")) or obj(chosen.get("custom")) or chosen).get("name")),
        parallel_tools=truth(body.get("parallel_tool_calls")),
        reasoning_effort=string(body.get("reasoning_effort")),
        form=read_form(body.get("response_format")),
    )
