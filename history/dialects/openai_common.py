"""Parts that OpenAI's two dialects share: requests, tools, text input of tools, errors, usage, HTTP API."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

from history.answers.events import AnswerFailed, ErrorKind
from history.context.messages import SYSTEM_CHANNEL
from history.context.values import Context, ContextEntry
from history.dialects.errors import ERRORS, KIND_OF_STATUS, failure_event, read_body
from history.dialects.http_api import HttpApi, ListedModel, can_chat
from history.dialects.json_access import as_bool, as_count, compact, items, obj, objs, string, without_empty
from history.dialects.request_decoder import RequestDecoder, read_function
from history.dialects.request_encoder import RequestEncoder, kind_of
from history.dialects.tools import hosted_tool
from history.dialects.types import AnswerForm, LossCode, ToolChoice
from history.entries import JsonDict, JsonObject, Part, Text, ToolDefinition, Usage, text_of

UNNAMED_FORM = "answer"  # OpenAI requires a name for an answer form
CHOICES: dict[str, ToolChoice] = {"auto": "auto", "none": "none", "required": "required"}


class OpenAIRequestEncoder(RequestEncoder):
    has_detail = True
    nests_fields: ClassVar[bool]  # of a tool, a tool choice and an answer form: below the name of their type

    def wrapped(self, kind: str, fields: JsonDict) -> JsonDict:
        return {"type": kind, kind: fields} if self.nests_fields else {"type": kind, **fields}

    def role_and_text(self, entry: ContextEntry) -> tuple[str, str]:
        """An instruction within the conversation: as text of the user for models without a system role."""
        text, role = text_of(entry.parts), self.switches.system_role
        return ("user", self.system_as_text(entry)) if text and role == "remove" else (role, text)

    def tools(self, context: Context) -> JsonDict:
        offered = self.offered_tools(context.tools)
        if not offered:
            return {}
        name, choice = self.forced_tool(offered), self.options.tool_choice
        return {
            "tools": [hosted or self.wrapped("function", self.function(tool)) for tool, hosted in offered],
            **without_empty(tool_choice=self.wrapped("function", {"name": name}) if name else choice),
            **without_empty(parallel_tool_calls=self.options.parallel_tools),
        }

    def answer_form(self) -> JsonDict:
        """Empty for any text. OpenAI rejects a schema of anything but an object."""
        form = self.options.form
        if form is None or form.schema is None:
            return {"type": "json_object"} if form else {}
        if form.schema.get("type") != "object":
            self.lose(LossCode.OPTION_NOT_CARRIED, name="response_format")
            return {}
        strict = without_empty(strict=form.strict)
        return self.wrapped("json_schema", {"name": form.name or UNNAMED_FORM, "schema": form.schema, **strict})


class OpenAIRequestDecoder(RequestDecoder):
    def instruction(self, parts: list[Part]) -> None:
        """Instructions before the first entry are the system text; later ones stay within the conversation."""
        if self.entries:
            self.add_input(parts, channel=SYSTEM_CHANNEL)
            return
        self.instructions.append(text_of(tuple(parts)))
        for part in parts:
            if not isinstance(part, Text):
                self.lose(LossCode.PART_NOT_CARRIED, type=kind_of(part))


def listed(content: object) -> Sequence[Any]:
    """The parts of a content, which may be a text alone."""
    return (content,) if isinstance(content, str) and content else items(content)


def read_tool(tool: JsonObject, *, dialect: str) -> ToolDefinition:
    """A function in any of its three shapes: wrapped, flat, or legacy."""
    function = obj(tool.get("function")) or tool
    if tool.get("type") not in (None, "function") or not string(function.get("name")):
        name = string(tool.get("name")) or string(obj(tool.get("custom")).get("name")) or string(tool.get("type"))
        return hosted_tool(name, tool, dialect=dialect)
    return read_function(function, "parameters")


def read_form(form: object) -> AnswerForm | None:
    """The answer form, wrapped or flat; None for any text."""
    kind, fields = obj(form).get("type"), obj(obj(form).get("json_schema")) or obj(form)
    if kind not in ("json_object", "json_schema"):
        return None
    schema, name = obj(fields.get("schema")) or None, string(fields.get("name"))
    return AnswerForm(schema=schema, name=name, strict=as_bool(fields.get("strict")))


def session_hints(body: JsonObject, names: tuple[str, ...]) -> dict[str, str]:
    places = (body, obj(body.get("metadata")), obj(body.get("client_metadata")))
    return {name: string(place.get(name)) for place in reversed(places) for name in names if string(place.get(name))}


# Plain text input of tools, as an object with one field. It may come in pieces.
INPUT_START, INPUT_END = '{"input":"', '"}'


def input_piece(text: str) -> str:
    """A piece of that object, between its start and its end."""
    return compact(text)[1:-1]


def usage_from_chat(raw: JsonObject) -> Usage:
    return usage_from_responses(raw, "prompt", "completion")


def usage_from_responses(raw: JsonObject, sent: str = "input", written: str = "output") -> Usage:
    """Input tokens include cached ones."""
    details = obj(raw.get(f"{sent}_tokens_details"))
    return Usage(
        input_tokens=as_count(raw.get(f"{sent}_tokens")),
        output_tokens=as_count(raw.get(f"{written}_tokens")),
        cache_read_tokens=as_count(details.get("cached_tokens"))
        or as_count(raw.get("prompt_cache_hit_tokens")),  # DeepSeek
        cache_write_tokens=as_count(details.get("cache_write_tokens")),
        reasoning_tokens=as_count(obj(raw.get(f"{written}_tokens_details")).get("reasoning_tokens")),
        raw=raw,
    )


def encode_usage(usage: Usage, sent: str = "input", written: str = "output") -> JsonDict:
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        f"{sent}_tokens": usage.input_tokens,
        f"{sent}_tokens_details": details,
        f"{written}_tokens": usage.output_tokens,
        f"{written}_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


KINDS: dict[str, ErrorKind] = {names.openai_code: kind for kind, names in ERRORS.items() if names.openai_code}
KINDS |= {
    "rate_limit_error": "rate_limit",
    "tokens": "rate_limit",
    "requests": "rate_limit",
    "server_error": "server",
    "authentication_error": "authentication",
    "overloaded_error": "overloaded",
    "invalid_request_error": "invalid_request",
}


def decode_error(status: int, body: bytes | JsonObject) -> AnswerFailed:
    reply = read_body(body)
    error = obj(reply.get("error"))
    code, error_type = string(error.get("code")), string(error.get("type"))
    message = string(error.get("message")) or string(reply.get("error")) or string(reply.get("message"))
    kind = KINDS.get(code) or KIND_OF_STATUS.get(status) or KINDS.get(error_type)
    return failure_event(reply, status, message=message, code=code or error_type, kind=kind, details=error_type)


def encode_error(error: AnswerFailed) -> tuple[int, JsonDict]:
    names = ERRORS[error.kind]
    body = {"message": error.message, "type": names.openai_type, "param": None, "code": names.openai_code}
    return names.status, {"error": body}


# Names of the context window at vLLM, OpenRouter, Mistral and llama.cpp; OpenAI does not list it.
_WINDOWS = ("max_model_len", "context_length", "max_context_length", "context_window")


class OpenAIApi(HttpApi):
    vendor = "openai"
    version_in_base_url = "/v1"
    not_found_kind = "invalid_request"  # OpenAI's clients take "not_found" for a missing model

    def encode_model(self, model: ListedModel) -> JsonDict:
        return {"id": model.name, "object": "model", "created": 0, "owned_by": model.owner or "parley"}

    def encode_models(self, models: Sequence[ListedModel]) -> JsonDict:
        return {"object": "list", "data": [self.encode_model(model) for model in models]}

    def read_models(self, listed: JsonObject) -> Iterator[ListedModel]:
        """The newest first, if the list has dates."""
        models = [item for item in objs(listed.get("data")) if can_chat(string(item.get("id")))]
        for item in sorted(models, key=lambda item: -as_count(item.get("created"))):
            yield ListedModel(name=string(item.get("id")), label=string(item.get("name")), window=_window(item))


def _window(item: JsonObject) -> int:
    window = next((as_count(item[name]) for name in _WINDOWS if as_count(item.get(name))), 0)
    return window or as_count(obj(item.get("meta")).get("n_ctx_train"))
