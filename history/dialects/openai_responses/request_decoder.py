"""Decoder of requests from clients of OpenAI Responses. Consecutive items of the model are one answer."""

from history.dialects.json_access import as_bool, as_int, compact, obj, objs, string, without_empty
from history.dialects.openai_common import CHOICES, OpenAIRequestDecoder, listed, read_form, read_tool, session_hints
from history.dialects.openai_responses.reply_reader import DIALECT, call_of, reasoning_extra, reasoning_text
from history.dialects.request_decoder import extra_of, other, read_options
from history.dialects.types import CallOptions, DecodedRequest, join_texts
from history.entries import JsonObject, Part, Reasoning, Text

HINTS = (
    *("previous_response_id", "prompt_cache_key", "session_id", "thread_id", "conversation_id"),
    *("user", "safety_identifier"),
)


class ResponsesRequestDecoder(OpenAIRequestDecoder):
    known = (
        *("model", "input", "instructions", "tools", "tool_choice", "max_output_tokens", "temperature", "top_p"),
        *("stream", "reasoning", "store", "include"),
    )

    def decode(self, body: JsonObject) -> DecodedRequest:
        body = self.check(body, needs=("input", "prompt", "previous_response_id"))
        # The unfinished answer, and the place of its first item.
        self.answer: list[Part] = []
        self.answer_place = 0
        items = body.get("input")
        for item in self.messages_in([{"role": "user", "content": items}] if isinstance(items, str) else items):
            self.item(item)
        self.end_answer()
        options, conversation = _options(body), body.get("conversation")
        is_any_form = obj(obj(body.get("text")).get("format")).get("type") == "text"
        return self.decoded(
            body,
            options,
            system=join_texts([string(body.get("instructions")), *self.instructions]),
            tools=tuple(read_tool(tool, dialect=DIALECT) for tool in objs(body.get("tools"))),
            read=frozenset({"text.format"} if options.form or is_any_form else ()),
            session_hints=session_hints(body, HINTS)
            | without_empty(conversation=string(conversation) or string(obj(conversation).get("id"))),
        )

    def end_answer(self) -> None:
        self.add_answer(self.answer, place=self.answer_place)
        self.answer = []

    def item(self, item: JsonObject) -> None:
        if not self.answer:
            self.answer_place = self.place
        kind = string(item.get("type")) or ("message" if "role" in item else "")
        if kind == "message":
            self.message(item)
        elif kind == "reasoning":
            self.answer.append(self.reasoning(item))
        elif call := call_of(item):
            call_id, name, arguments = call
            self.answer.append(self.call(call_id=call_id, name=name, arguments=arguments or "{}"))
        elif kind.endswith("_output") and "output" in item:
            self.end_answer()
            call_id = string(item.get("call_id"))
            self.add_results([self.result(call_id=call_id, name="", parts=self.output(item.get("output")))])
        else:
            self.answer.append(other(item))

    def message(self, item: JsonObject) -> None:
        parts = [self.part(part) for part in listed(item.get("content"))]
        if item.get("role") == "assistant":
            self.answer += parts
            return
        self.end_answer()
        if item.get("role") in ("system", "developer"):
            self.instruction(parts)
        else:
            self.add_input(parts)

    def reasoning(self, item: JsonObject) -> Reasoning:
        signature, extra = string(item.get("encrypted_content")), reasoning_extra(item)
        return Reasoning(text=reasoning_text(item), signature=signature, provider=self.provider, extra=extra)

    def output(self, output: object) -> list[Part]:
        if isinstance(output, str | list | tuple):
            return [self.part(part) for part in listed(output)]
        return [Text(text=compact(output))] if output else []

    def part(self, part: object) -> Part:
        if isinstance(part, str):
            return Text(text=part)
        fields = obj(part)
        match fields.get("type"):
            case "input_text" | "output_text" | "text" | "refusal" | "summary_text":
                text = fields.get("text", fields.get("refusal"))
                extra = extra_of(fields, "text", "refusal", "logprobs")
                extra = {name: value for name, value in extra.items() if value != []}
                return Text(text=text, extra=extra) if isinstance(text, str) else other(part)
            case "input_image":
                image = fields.get("image_url")
                url, extra = string(image) or string(obj(image).get("url")), extra_of(fields, "image_url")
                if extra.get("detail") == "auto":  # the default of clients
                    del extra["detail"]
                return self.media(url, media_type="image/*", **extra) or other(part)
            case "input_file":
                name = string(fields.get("filename"))
                if data := string(fields.get("file_data")):
                    return self.file(data, media_type="application/pdf", name=name) or other(part)
                source = string(fields.get("file_url"))
                return self.media(source, media_type="application/pdf", name=name) or other(part)
            case _:
                return other(part)


def _options(body: JsonObject) -> CallOptions:
    choice = body.get("tool_choice")
    return read_options(
        body,
        tool_choice=CHOICES.get(string(choice), ""),
        parallel_tools=as_bool(body.get("parallel_tool_calls")),
        max_tokens=as_int(body.get("max_output_tokens")),
        tool_name=string(obj(choice).get("name")),
        reasoning_effort=string(obj(body.get("reasoning")).get("effort")),
        form=read_form(obj(body.get("text")).get("format")),
    )
