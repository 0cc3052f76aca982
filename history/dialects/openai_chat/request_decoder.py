"""Decoder of requests from clients of OpenAI Chat Completions, also with the legacy ``functions``."""

from history.dialects.json_access import as_bool, as_int, from_base64, items, obj, objs, string
from history.dialects.openai_chat.reply_reader import DIALECT
from history.dialects.openai_common import CHOICES, OpenAIRequestDecoder, listed, read_form, read_tool, session_hints
from history.dialects.request_decoder import extra_of, other, read_options
from history.dialects.tools import arguments_text
from history.dialects.types import CallOptions, DecodedRequest, join_texts
from history.entries import JsonObject, Part, Reasoning, Text, ToolRequest

HINTS = ("user", "safety_identifier", "prompt_cache_key", "session_id", "conversation_id", "litellm_session_id")
SOUNDS = {"wav": "audio/wav", "mp3": "audio/mpeg"}


class ChatRequestDecoder(OpenAIRequestDecoder):
    known = (
        *("model", "messages", "tools", "functions", "tool_choice", "function_call", "max_completion_tokens"),
        *("max_tokens", "temperature", "top_p", "stop", "stream", "reasoning_effort"),
    )

    def decode(self, body: JsonObject) -> DecodedRequest:
        body = self.check(body, needs=("messages",))
        for message in self.messages_in(body.get("messages")):
            self.message(message)
        options = _options(body)
        tools = (*objs(body.get("tools")), *objs(body.get("functions")))
        is_any_form = obj(body.get("response_format")).get("type") == "text"
        return self.decoded(
            body,
            options,
            system=join_texts(self.instructions),
            tools=tuple(read_tool(tool, dialect=DIALECT) for tool in tools),
            read=frozenset({"response_format"} if options.form or is_any_form else ()),
            session_hints=session_hints(body, HINTS),
        )

    def message(self, message: JsonObject) -> None:
        parts = [self.part(part) for part in listed(message.get("content"))]
        name = string(message.get("name"))
        match message.get("role"):
            case "assistant":
                self.add_answer(self.answer_parts(message, parts))
            case "system" | "developer":
                self.instruction(parts)
            case "tool" | "function":
                call_id = string(message.get("tool_call_id"))
                self.add_results([self.result(call_id=call_id, name=name, parts=parts)])
            case _:
                self.add_input(parts, {"name": name} if name else {})

    def answer_parts(self, message: JsonObject, content: list[Part]) -> list[Part]:
        parts: list[Part] = []
        if thinking := string(message.get("reasoning_content")) or string(message.get("reasoning")):
            parts.append(Reasoning(text=thinking, provider=self.provider))
        parts += content
        if refusal := string(message.get("refusal")):
            parts.append(Text(text=refusal))
        parts += [self.read_call(call) for call in objs(message.get("tool_calls"))]
        if legacy := obj(message.get("function_call")):
            parts.append(self.read_call({"function": legacy}))
        return parts

    def read_call(self, call: JsonObject) -> ToolRequest:
        """A function, or a tool that takes plain text (``custom``)."""
        function = obj(call.get("function")) or obj(call.get("custom"))
        value = function.get("arguments", function.get("input"))
        arguments = arguments_text({"input": value} if "custom" in call else value)
        return self.call(call_id=string(call.get("id")), name=string(function.get("name")), arguments=arguments)

    def part(self, part: object) -> Part:
        if isinstance(part, str):
            return Text(text=part)
        fields = obj(part)
        match fields.get("type"):
            case "text" | "input_text" | "output_text" | "refusal":
                text = fields.get("text", fields.get("refusal"))
                return Text(text=text, extra=extra_of(fields, "text")) if isinstance(text, str) else other(part)
            case "image_url":
                image = fields.get("image_url")
                url = string(obj(image).get("url")) or string(image)
                extra = extra_of(fields, "image_url") | extra_of(obj(image), "url")
                return self.media(url, media_type="image/*", **extra) or other(part)
            case "input_audio":
                sound = obj(fields.get("input_audio"))
                content = from_base64(sound.get("data"))
                media_type = SOUNDS.get(string(sound.get("format")), "audio/*")
                return other(part) if content is None else self.add_media(content, media_type=media_type)
            case "file":
                file = obj(fields.get("file"))
                name, data = string(file.get("filename")), string(file.get("file_data"))
                return self.file(data, media_type="application/pdf", name=name) or other(part)
            case _:
                return other(part)


def _options(body: JsonObject) -> CallOptions:
    choice = body.get("tool_choice", body.get("function_call"))
    chosen = obj(choice)
    stop = body.get("stop")
    limit = as_int(body.get("max_completion_tokens"))
    return read_options(
        body,
        tool_choice=CHOICES.get(string(choice), ""),
        parallel_tools=as_bool(body.get("parallel_tool_calls")),
        max_tokens=as_int(body.get("max_tokens")) if limit is None else limit,
        stop=(stop,) if isinstance(stop, str) else tuple(string(word) for word in items(stop)),
        tool_name=string((obj(chosen.get("function")) or obj(chosen.get("custom")) or chosen).get("name")),
        reasoning_effort=string(body.get("reasoning_effort")),
        form=read_form(body.get("response_format")),
    )
