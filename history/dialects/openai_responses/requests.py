"""A request that a client of OpenAI Responses sent, read into entries. Items of the model in a row are one answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from history.dialects.json_access import compact, number, obj, objs, string, truth, whole
from history.dialects.openai_common import CHOICES, OpenAIReading, read_form, read_tool, session_hints
from history.dialects.openai_responses.replies import DIALECT, PROVIDER, call_of, reasoning_extra, reasoning_text
from history.dialects.request_decoder import check_request, extra_of, other, unread_choice
from history.dialects.types import CallOptions, DecodedRequest, joined
from history.entries import Part, Reasoning, Text

KNOWN = (
    *("model", "input", "instructions", "tools", "tool_choice", "max_output_tokens", "temperature", "top_p"),
    *("stream", "reasoning", "store", "include"),
)
HINTS = (
    *("previous_response_id", "prompt_cache_key", "session_id", "thread_id", "conversation_id"),
    *("user", "safety_identifier"),
)


def decode_request(body: Mapping[str, Any], *, provider: str = "", at: datetime | None = None) -> DecodedRequest:
    body = check_request(body, needs=("input", "prompt", "previous_response_id"))
    reading = _Reading(provider=provider or PROVIDER, at=at)
    given = body.get("input")
    for item in reading.each([{"role": "user", "content": given}] if isinstance(given, str) else given):
        reading.item(item)
    reading.flush()
    options = _options(body)
    return reading.decoded(
        body,
        known=KNOWN,
        system=joined([string(body.get("instructions")), *reading.instructions]),
        tools=tuple(read_tool(tool, dialect=DIALECT) for tool in objs(body.get("tools"))),
        model=string(body.get("model")),
        options=options,
        extra=unread_choice(body, options),
        read=frozenset({"text.format"} if options.form or _is_any(body) else ()),
        session_hints=session_hints(body, HINTS) | _conversation(body),
    )


class _Reading(OpenAIReading):
    def __init__(self, *, provider: str, at: datetime | None) -> None:
        super().__init__(provider=provider, at=at)
        self.saying: list[Part] = []
        self.began = 0

    def flush(self) -> None:
        """What the model said so far is one answer."""
        self.answer(self.saying, place=self.began)
        self.saying = []

    def item(self, item: Mapping[str, Any]) -> None:
        if not self.saying:
            self.began = self.place
        kind = string(item.get("type")) or ("message" if "role" in item else "")
        if kind == "message":
            self.message(item)
        elif kind == "reasoning":
            self.saying.append(self.reasoning(item))
        elif call := call_of(item):
            call_id, name, arguments = call
            self.saying.append(self.call(call_id=call_id, name=name, arguments=arguments or "{}"))
        elif kind.endswith("_output") and "output" in item:
            self.flush()
            call_id = string(item.get("call_id"))
            self.find([self.result(call_id=call_id, name="", parts=self.output(item.get("output")))])
        else:
            self.saying.append(other(item))

    def message(self, item: Mapping[str, Any]) -> None:
        parts = self.parts(item.get("content"))
        if item.get("role") == "assistant":
            self.saying += parts
            return
        self.flush()
        if item.get("role") in ("system", "developer"):
            self.instruction(parts)
        else:
            self.hear(parts)

    def reasoning(self, item: Mapping[str, Any]) -> Reasoning:
        signature = string(item.get("encrypted_content"))
        return Reasoning(
            text=reasoning_text(item), signature=signature, provider=self.provider, extra=reasoning_extra(item)
        )

    def output(self, given: Any) -> list[Part]:
        """What a tool gave back: a text, a list of parts, or any object at all."""
        if isinstance(given, str | list | tuple):
            return self.parts(given)
        return [Text(text=compact(given))] if given else []

    def part(self, part: Any) -> Part:
        if isinstance(part, str):
            return Text(text=part)
        found = obj(part)
        match found.get("type"):
            case "input_text" | "output_text" | "text" | "refusal" | "summary_text":
                text = found.get("text", found.get("refusal"))
                extra = extra_of(found, "text", "refusal", "logprobs")
                extra = {name: value for name, value in extra.items() if value != []}
                return Text(text=text, extra=extra) if isinstance(text, str) else other(part)
            case "input_image":
                image = found.get("image_url")
                url, extra = string(image) or string(obj(image).get("url")), extra_of(found, "image_url")
                if extra.get("detail") == "auto":  # which it always says
                    del extra["detail"]
                return self.media(url, media_type="image/*", **extra) or other(part)
            case "input_file":
                name = string(found.get("filename"))
                if data := string(found.get("file_data")):
                    return self.file(data, media_type="application/pdf", name=name) or other(part)
                source = string(found.get("file_url"))
                return self.media(source, media_type="application/pdf", name=name) or other(part)
            case _:
                return other(part)


def _is_any(body: Mapping[str, Any]) -> bool:
    return obj(obj(body.get("text")).get("format")).get("type") == "text"


def _conversation(body: Mapping[str, Any]) -> dict[str, str]:
    given = body.get("conversation")
    name = string(given) or string(obj(given).get("id"))
    return {"conversation": name} if name else {}


def _options(body: Mapping[str, Any]) -> CallOptions:
    choice = body.get("tool_choice")
    return CallOptions(
        model=string(body.get("model")),
        max_tokens=whole(body.get("max_output_tokens")),
        temperature=number(body.get("temperature")),
        top_p=number(body.get("top_p")),
        stream=body.get("stream") is True,
        tool_choice=CHOICES.get(string(choice), ""),
        tool_name=string(obj(choice).get("name")),
        parallel_tools=truth(body.get("parallel_tool_calls")),
        reasoning_effort=string(obj(body.get("reasoning")).get("effort")),
        form=read_form(obj(body.get("text")).get("format")),
    )
