"""Encoder of requests to OpenAI Responses, without storage at the vendor: rules in docs/internals/dialects.md."""

from collections.abc import Iterable, Iterator

from history.context.values import Context, ContextEntry
from history.dialects.json_access import without_empty
from history.dialects.openai_common import OpenAIRequestEncoder
from history.dialects.openai_responses.reply_reader import DIALECT
from history.dialects.request_encoder import EncodedEntry, LoadedMedia, data_url, detail_of, media_in, missing_error
from history.dialects.types import LossCode, join_texts
from history.entries import JsonDict, Media, Part, Reasoning, Text, ToolRequest, ToolResult, thaw


class ResponsesRequestEncoder(OpenAIRequestEncoder):
    dialect = DIALECT
    id_limit = 64
    nests_fields = False
    text_fields = {"type": "input_text"}
    function_fields = {"strict": False}

    def request(self, context: Context, encoded: list[EncodedEntry]) -> tuple[str, JsonDict]:
        options, effort, system = self.options, self.options.reasoning_effort, context.system
        items = [item for _, items in encoded for item in items]
        if system and self.switches.system_role == "developer":
            items.insert(0, self.message("developer", [self.text(system)]))
            system = ""
        body = {
            "model": options.model,
            **without_empty(instructions=system),
            "input": items,
            **self.tools(context),
            **without_empty(max_output_tokens=options.max_tokens, temperature=options.temperature, top_p=options.top_p),
            **({"text": {"format": form}} if (form := self.answer_form()) else {}),
            **without_empty(reasoning={"effort": effort, "summary": "auto"} if effort else None),
            "store": False,
            "include": ["reasoning.encrypted_content"],
            **({"stream": True} if options.stream else {}),
        }
        if options.stop:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="stop")
        return "/responses", body  # the base URL of OpenAI's SDK ends in /v1

    def message(self, role: str, blocks: list[JsonDict]) -> JsonDict:
        return {"type": "message", "role": role, "content": blocks}

    def instruction(self, entry: ContextEntry) -> list[JsonDict]:
        role, text = self.role_and_text(entry)
        return [self.message(role, [self.text(text)])] if text else []

    def input(self, entry: ContextEntry) -> list[JsonDict]:
        blocks = self.blocks(self.input_parts(entry))
        return [self.message("user", blocks)] if blocks else []

    def answer(self, entry: ContextEntry) -> list[JsonDict]:
        """Between two reasoning items, messages come before calls."""
        written: list[JsonDict] = []
        for thought, parts in self.thoughts(entry.parts):
            items = [item for part in parts if (item := self.item(part))]
            ordered = sorted(items, key=lambda item: item["type"] == "function_call")
            if ordered != items:
                self.lose(LossCode.PARTS_REORDERED)
            if thought is not None and ordered:
                written.append(_reasoning(thought))
            elif thought is not None:
                self.lose(LossCode.REASONING_ALONE)
            written += ordered
        return written

    def thoughts(self, parts: tuple[Part, ...]) -> Iterator[tuple[Reasoning | None, list[Part]]]:
        """The parts of an answer, split before each reasoning that goes back."""
        thought: Reasoning | None = None
        followers: list[Part] = []
        for part in parts:
            if not isinstance(part, Reasoning):
                followers.append(part)
            elif self.may_return(part):
                yield thought, followers
                thought, followers = part, []
        yield thought, followers

    def item(self, part: Part) -> JsonDict | None:
        if isinstance(part, Text):
            # A string: a list would need the item's id at the vendor.
            return {"type": "message", "role": "assistant", "content": part.text} if part.text else None
        if isinstance(part, ToolRequest):
            call_id = self.call_id(part.call_id)
            return {"type": "function_call", "call_id": call_id, "name": part.name, "arguments": part.arguments}
        self.leave_out([part])
        return None

    def results(self, entry: ContextEntry) -> list[JsonDict]:
        outputs = [self.result(result) for result in entry.results]
        if outputs and (screen := self.live_screen(entry)):
            last = outputs[-1]["output"]
            outputs[-1]["output"] = join_texts([last, screen]) if isinstance(last, str) else [*last, self.text(screen)]
        if self.switches.media_in_results:
            return outputs
        moved = [self.blocks(self.moved_media(result)) for result in entry.results]
        return [*outputs, *(self.message("user", blocks) for blocks in moved if blocks)]

    def result(self, result: ToolResult) -> JsonDict:
        self.lose_status(result)
        output: str | list[JsonDict] = self.result_text(result)
        if self.switches.media_in_results and media_in(result):
            output = self.blocks(result.parts)
            if error := missing_error(result):
                output.append(self.text(error))
        else:
            self.leave_out(result.parts, except_for=(Media,))
        call_id = self.call_id(result.call_id)
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def blocks(self, parts: Iterable[Part]) -> list[JsonDict]:
        return [self.media(*part) if isinstance(part, LoadedMedia) else part for part in self.sendable(parts)]

    def media(self, media: Media, content: bytes | None) -> JsonDict:
        if media.media_type.startswith("image/"):
            url = media.url if content is None else data_url(media.media_type, content)
            return {"type": "input_image", "detail": detail_of(media), "image_url": url}
        if media.media_type == "application/pdf":
            if content is None:
                return {"type": "input_file", "file_url": media.url}
            name = media.name or "document.pdf"
            return {"type": "input_file", "filename": name, "file_data": data_url(media.media_type, content)}
        if media.media_type.startswith("text/") and content is not None:
            return self.text_file(media, content)
        return self.note(media)


def _reasoning(part: Reasoning) -> JsonDict:
    """Unchanged: with its id, and its summary in the original parts."""
    summary = thaw(part.extra.get("summary")) or ([{"type": "summary_text", "text": part.text}] if part.text else [])
    return {
        "type": "reasoning",
        **without_empty(id=part.extra.get("id")),
        "summary": summary,
        "encrypted_content": part.signature or part.redacted,
    }
