"""A context as a request to OpenAI Responses, without anything kept on the vendor's side (``store: false``).

The rules that matter: each reasoning item is followed by what it led to; messages come before calls, all calls of an
answer before all outputs; reasoning goes back encrypted, as it came.
"""

from __future__ import annotations

from collections.abc import Iterator

from history.context import Context
from history.context.entries import ContextEntry
from history.dialects.encoder import Json, data_url, detail_of, media_in, untold_error, with_system_in_first_input
from history.dialects.json_access import without_empty
from history.dialects.openai_common import OpenAIWriting
from history.dialects.openai_responses.replies import DIALECT, PROVIDER
from history.dialects.types import CallOptions, Encoded, LossCode, joined
from history.entries import Media, Part, Reasoning, Text, ToolDefinition, ToolRequest, ToolResult, thaw

# After the base URL as OpenAI's own SDK has it, which ends in /v1.
PATH = "/responses"
ID_LIMIT = 64


def encode(context: Context, options: CallOptions) -> Encoded:
    writer = _Writer(options, dialect=DIALECT, vendor=PROVIDER)
    body = {
        "model": options.model,
        **writer.conversation(context),
        **writer.tools(context),
        **without_empty(max_output_tokens=options.max_tokens, temperature=options.temperature, top_p=options.top_p),
        **writer.answer_form(),
        **writer.reasoning(),
        "store": False,
        "include": ["reasoning.encrypted_content"],
        **({"stream": True} if options.stream else {}),
    }
    if options.stop:
        writer.lose(LossCode.OPTION_NOT_CARRIED, name="stop")
    return writer.encoded(context, body, path=PATH)


class _Writer(OpenAIWriting):
    def conversation(self, context: Context) -> Json:
        role = self.switches.system_role
        if role == "remove":
            context = with_system_in_first_input(context)
        context = self.with_something_said(context)
        items = [item for entry in self.entries(context) for item in self.written(entry)]
        if not context.system or role == "developer":
            opening = [self.message("developer", [self.text(context.system)])] if context.system else []
            return {"input": [*opening, *items]}
        return {"instructions": context.system, "input": items}

    def message(self, role: str, blocks: list[Json]) -> Json:
        return {"type": "message", "role": role, "content": blocks}

    def text(self, text: str) -> Json:
        return {"type": "input_text", "text": text}

    def function(self, fields: Json) -> Json:
        return {"type": "function", **fields}

    def tool(self, tool: ToolDefinition) -> Json:
        return {**super().tool(tool), "strict": False}

    def answer(self, entry: ContextEntry) -> Iterator[Json]:
        """Between two reasoning items messages come before calls, so that each keeps its own followers."""
        written: list[Json] = []
        for thought, parts in self.thoughts(entry.parts):
            said = [item for part in parts if (item := self.said(part))]
            ordered = sorted(said, key=lambda item: item["type"] == "function_call")
            if ordered != said:
                self.lose(LossCode.PARTS_REORDERED)
            if thought is not None and ordered:
                written.append(_reasoning(thought))
            elif thought is not None:
                self.lose(LossCode.REASONING_ALONE)
            written += ordered
        if not written:
            self.lose(LossCode.MESSAGE_LEFT_OUT)
        yield from written

    def thoughts(self, parts: tuple[Part, ...]) -> Iterator[tuple[Reasoning | None, list[Part]]]:
        """The parts of an answer, cut before each piece of reasoning that goes back."""
        thought: Reasoning | None = None
        followers: list[Part] = []
        for part in parts:
            if not isinstance(part, Reasoning):
                followers.append(part)
            elif self.may_return(part):
                yield thought, followers
                thought, followers = part, []
        yield thought, followers

    def said(self, part: Part) -> Json | None:
        if isinstance(part, Text):
            # As a plain text: as a list it would need the id that it had at the vendor.
            return {"type": "message", "role": "assistant", "content": part.text} if part.text else None
        if isinstance(part, ToolRequest):
            call_id = self.call_id(part.call_id, limit=ID_LIMIT)
            return {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": part.arguments}
        self.leave_out(part)
        return None

    def results(self, entry: ContextEntry) -> Iterator[Json]:
        outputs = [self.result(result) for result in entry.results]
        if outputs and (screen := self.live_screen(entry)):
            last = outputs[-1]["output"]
            outputs[-1]["output"] = joined([last, screen]) if isinstance(last, str) else [*last, self.text(screen)]
        yield from outputs
        for result in () if self.switches.media_in_results else entry.results:
            if moved := self.moved_media(result):
                yield self.message("user", moved)

    def result(self, result: ToolResult) -> Json:
        self.without_status(result)
        output: str | list[Json] = self.result_text(result)
        if self.switches.media_in_results and media_in(result):
            output = self.blocks(result.parts)
            if error := untold_error(result):
                output.append(self.text(error))
        else:
            self.leave_out_others(result.parts, taken=(Media,))
        call_id = self.call_id(result.call_id, limit=ID_LIMIT)
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def media(self, media: Media) -> Json:
        content = self.bytes_of(media)
        if content is None and not media.url:
            return self.text(self.note(media, LossCode.MEDIA_UNAVAILABLE))
        if media.media_type.startswith("image/"):
            url = media.url if content is None else data_url(media.media_type, content)
            return {"type": "input_image", "detail": detail_of(media), "image_url": url}
        if media.media_type == "application/pdf":
            if content is None:
                return {"type": "input_file", "file_url": media.url}
            name = media.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(media.media_type, content)}
        if media.media_type.startswith("text/") and content is not None:
            return self.text(self.text_file(media, content))
        return self.text(self.note(media, LossCode.MEDIA_NOT_CARRIED))

    def answer_form(self) -> Json:
        form = self.form()
        if form is None:
            return {}
        return {"text": {"format": {"type": "json_schema", **form} if form else {"type": "json_object"}}}

    def reasoning(self) -> Json:
        effort = self.options.reasoning_effort
        return {"reasoning": {"effort": effort, "summary": "auto"}} if effort else {}


def _reasoning(part: Reasoning) -> Json:
    """As it came: with its id, and its summary in the pieces that it had."""
    summary = thaw(part.extra.get("summary")) or ([{"type": "summary_text", "text": part.text}] if part.text else [])
    return {
        "type": "reasoning",
        **without_empty(id=part.extra.get("id")),
        "summary": summary,
        "encrypted_content": part.signature or part.redacted,
    }
