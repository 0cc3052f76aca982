"""Decoder of requests from clients of Anthropic."""

from collections.abc import Mapping

from history.context.messages import SYSTEM_CHANNEL
from history.dialects.anthropic_messages.reply_reader import DIALECT
from history.dialects.json_access import as_bool, as_int, from_base64, items, obj, objs, parse_json, string
from history.dialects.request_decoder import RequestDecoder, effort_for, extra_of, other, read_function, read_options
from history.dialects.tools import arguments_text, hosted_tool
from history.dialects.types import AnswerForm, CallOptions, DecodedRequest, LossCode, ToolChoice, join_texts
from history.entries import JsonObject, Part, Reasoning, Text, ToolDefinition, ToolResult

CHOICES: dict[str, ToolChoice] = {"auto": "auto", "any": "required", "none": "none"}
# Claude Code starts its instruction with a line for billing that differs in every request.
ATTRIBUTION = "x-anthropic-billing-header:"


class AnthropicRequestDecoder(RequestDecoder):
    known = (
        *("model", "messages", "system", "tools", "tool_choice", "max_tokens", "temperature", "top_p"),
        *("stop_sequences", "stream", "metadata"),
    )

    def decode(self, body: JsonObject) -> DecodedRequest:
        body = self.check(body, needs=("messages",))
        for message in self.messages_in(body.get("messages")):
            self.message(message)
        options = _options(body)
        read = ["thinking", "output_config.effort"] if options.reasoning_effort else []
        read += ["output_format", "output_config.format"] if options.form else []
        return self.decoded(
            body,
            options,
            system=self.system(body.get("system")),
            tools=tuple(_tool(tool) for tool in objs(body.get("tools"))),
            read=frozenset(read),
            session_hints=_hints(body),
        )

    def system(self, content: object) -> str:
        texts = []
        for block in _blocks(content):
            text = string(block.get("text"))
            if text.startswith(ATTRIBUTION):
                self.lose(LossCode.ATTRIBUTION_LEFT_OUT)
            else:
                texts.append(text)
        return join_texts(texts)

    def message(self, message: JsonObject) -> None:
        blocks = _blocks(message.get("content"))
        match message.get("role"):
            case "assistant":
                self.add_answer([self.answer_part(block) for block in blocks])
            case "system" | "developer":
                metadata = extra_of(message, "role", "content")
                self.add_input([self.part(block) for block in blocks], metadata, channel=SYSTEM_CHANNEL)
            case _:
                results = [block for block in blocks if block.get("type") == "tool_result"]
                self.add_results([self.tool_result(block) for block in results])
                self.add_input([self.part(block) for block in blocks if block.get("type") != "tool_result"])

    def answer_part(self, block: JsonObject) -> Part:
        match block.get("type"):
            case "thinking":
                text, signature = string(block.get("thinking")), string(block.get("signature"))
                return Reasoning(text=text, signature=signature, provider=self.provider if signature else "")
            case "redacted_thinking":
                return Reasoning(redacted=string(block.get("data")), provider=self.provider)
            case "tool_use":
                call_id, name = string(block.get("id")), string(block.get("name"))
                extra = extra_of(block, "id", "name", "input")
                return self.call(call_id=call_id, name=name, arguments=arguments_text(block.get("input")), **extra)
            case _:
                return self.part(block)

    def part(self, block: JsonObject) -> Part:
        match block.get("type"):
            case "text" if isinstance(block.get("text"), str):
                return Text(text=block["text"], extra=extra_of(block, "text"))
            case "image" | "document":
                return self.attachment(block) or other(block)
            case _:
                return other(block)

    def attachment(self, block: JsonObject) -> Part | None:
        source = obj(block.get("source"))
        name, extra = string(block.get("title")), extra_of(block, "source", "title")
        default = "image/*" if block.get("type") == "image" else "application/pdf"
        media_type = string(source.get("media_type")) or default
        match source.get("type"):
            case "base64" if (content := from_base64(source.get("data"))) is not None:
                return self.add_media(content, media_type=media_type, name=name, **extra)
            case "text":
                content = string(source.get("data")).encode("utf-8", "surrogatepass")
                return self.add_media(content, media_type=media_type, name=name, **extra)
            case "url":
                return self.media(string(source.get("url")), media_type=media_type, name=name, **extra)
            case _:
                return None

    def tool_result(self, block: JsonObject) -> ToolResult:
        return self.result(
            call_id=string(block.get("tool_use_id")),
            name="",
            parts=[self.part(inner) for inner in _blocks(block.get("content"))],
            status="failed" if block.get("is_error") is True else "success",
            **extra_of(block, "tool_use_id", "content", "is_error"),
        )


def _blocks(content: object) -> list[JsonObject]:
    """Content is a text or a list of blocks; some clients put texts into the list."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [block if isinstance(block, Mapping) else {"type": "text", "text": block} for block in items(content)]


def _tool(tool: JsonObject) -> ToolDefinition:
    if tool.get("type") in (None, "custom"):
        return read_function(tool, "input_schema")
    return hosted_tool(string(tool.get("name")), tool, dialect=DIALECT)


def _options(body: JsonObject) -> CallOptions:
    choice, output = obj(body.get("tool_choice")), obj(body.get("output_config"))
    is_single = as_bool(choice.get("disable_parallel_tool_use"))
    budget = as_int(obj(body.get("thinking")).get("budget_tokens"))
    form = obj(output.get("format")) or obj(body.get("output_format"))  # the first betas had a field of their own
    return read_options(
        body,
        max_tokens=as_int(body.get("max_tokens")),
        stop=tuple(string(word) for word in items(body.get("stop_sequences"))),
        tool_choice=CHOICES.get(string(choice.get("type")), ""),
        tool_name=string(choice.get("name")) if choice.get("type") == "tool" else "",
        parallel_tools=None if is_single is None else not is_single,
        reasoning_effort=string(output.get("effort")) or effort_for(budget),
        form=AnswerForm(schema=obj(form.get("schema"))) if form.get("type") == "json_schema" else None,
    )


def _hints(body: JsonObject) -> dict[str, str]:
    """Claude Code sends its session id in ``metadata.user_id``: in JSON, or after a prefix."""
    user_id = string(obj(body.get("metadata")).get("user_id"))
    hints = {"user_id": user_id} if user_id else {}
    try:
        session = string(obj(parse_json(user_id)).get("session_id"))
    except ValueError:
        session = user_id.rpartition("_session_")[2] if "_session_" in user_id else ""
    return {**hints, "session_id": session} if session else hints
