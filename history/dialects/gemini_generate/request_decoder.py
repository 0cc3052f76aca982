"""Decoder of requests from clients of Gemini. A call without an id gets one made from its content."""

from collections import deque
from collections.abc import Mapping

from history.dialects.gemini_generate.normalisation import as_json_schema, to_camel_case
from history.dialects.gemini_generate.reply_reader import DIALECT
from history.dialects.gemini_generate.request_encoder import SENTINEL
from history.dialects.json_access import as_float, as_int, compact, from_base64, items, obj, objs, string, without_empty
from history.dialects.request_decoder import RequestDecoder, effort_for, extra_of, other, read_function
from history.dialects.tools import arguments_text, hosted_tool
from history.dialects.types import AnswerForm, CallOptions, DecodedRequest, ToolChoice, join_texts
from history.entries import (
    JsonDict,
    JsonObject,
    Media,
    ModelOutput,
    Part,
    Reasoning,
    ResultStatus,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
)

CHOICES: dict[str, ToolChoice] = {"AUTO": "auto", "NONE": "none", "ANY": "required"}
UNSPECIFIED = "MODE_UNSPECIFIED"


class GeminiRequestDecoder(RequestDecoder):
    known = ("model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig")

    def decode(self, body: JsonObject) -> DecodedRequest:
        """The model's name is in the path of a Gemini request, not in its body: the caller adds it."""
        body = self.check(to_camel_case(body), needs=("contents",))
        self.unnamed: dict[str, deque[str]] = {}  # the ids that were made for calls without one, by name
        contents = body.get("contents")
        contents = [contents] if isinstance(contents, str | Mapping) else items(contents)
        # A content may be a text alone.
        contents = [{"parts": [{"text": one}]} if isinstance(one, str) else one for one in contents]
        for content in self.messages_in(contents):
            self.content(content)
        options = _options(body)
        read = ["thinkingConfig"] if options.reasoning_effort else []
        read += ["responseMimeType", "responseSchema", "responseJsonSchema"] if options.form else []
        return self.decoded(
            body,
            options,
            system=_system(body.get("systemInstruction")),
            tools=tuple(tool for group in objs(body.get("tools")) for tool in _tools(group)),
            read=frozenset(f"generationConfig.{name}" for name in read),
            session_hints={"session_id": session} if (session := string(body.get("session_id"))) else {},
            extra=_other_configuration(body),
        )

    def content(self, content: JsonObject) -> None:
        parts = _parts_of(content)
        if content.get("role") == "model":
            self.extend_answer(parts)
            return
        responses = [response for part in parts if (response := obj(part.get("functionResponse")))]
        self.add_results([self.response(response) for response in responses])
        others = [part for part in parts if not obj(part.get("functionResponse"))]
        self.add_input([one for part in others for one in self.parts(part)])

    def extend_answer(self, parts: list[JsonObject]) -> None:
        """Google's SDK stores each chunk of a stream as a content: consecutive ones are one answer."""
        latest = self.entries[-1] if self.entries else None
        if not isinstance(latest, ModelOutput):
            self.calls.clear()
            self.unnamed.clear()
        answer = [one for part in parts for one in self.parts(part)]
        if isinstance(latest, ModelOutput):
            self.extend_last(answer)
        else:
            self.add_answer(answer)

    def parts(self, part: JsonObject) -> list[Part]:
        """A signature is a part of its own, at the same position as in a reply."""
        signature = string(part.get("thoughtSignature"))
        signature = "" if signature == SENTINEL else signature
        if part.get("thought") is True:
            return [Reasoning(text=string(part.get("text")), signature=signature, provider=self.provider)]
        signed: list[Part] = [Reasoning(signature=signature, provider=self.provider)] if signature else []
        content = self.part(part)
        if content is None:
            return signed
        return [content, *signed] if isinstance(content, Text) else [*signed, content]

    def part(self, part: JsonObject) -> Part | None:
        if isinstance(text := part.get("text"), str):
            return Text(text=text, extra=extra_of(part, "text", "thoughtSignature")) if text else None
        if call := obj(part.get("functionCall")):
            return self.read_call(call)
        return self.attachment(part) or other(part)

    def read_call(self, call: JsonObject) -> ToolRequest:
        call_id, name, arguments = string(call.get("id")), string(call.get("name")), arguments_text(call.get("args"))
        request = self.call(call_id=call_id, name=name, arguments=arguments)
        if not call_id:
            self.unnamed.setdefault(name, deque()).append(request.call_id)
        return request

    def attachment(self, part: JsonObject) -> Media | None:
        inline, file = obj(part.get("inlineData")), obj(part.get("fileData"))
        name = string(inline.get("displayName")) or string(file.get("displayName"))
        if (content := from_base64(inline.get("data"))) is not None:
            return self.add_media(content, media_type=string(inline.get("mimeType")), name=name)
        url, media_type = string(file.get("fileUri")), string(file.get("mimeType"))
        return Media(media_type=media_type, url=url, name=name) if url else None

    def response(self, response: JsonObject) -> ToolResult:
        fields = obj(response.get("response"))
        error, output = fields.get("error"), fields.get("output", fields.get("result"))
        is_failed = bool(error and "output" not in fields)
        content = error if is_failed else response.get("response") if output is None else output
        text = content if isinstance(content, str) else compact(content)
        parts: list[Part] = [Text(text=text)] if text else []
        parts += [media for part in objs(response.get("parts")) if (media := self.attachment(part))]
        status: ResultStatus = "failed" if is_failed else "success"
        name, call_id = string(response.get("name")), string(response.get("id"))
        if call_id and call_id not in self.calls:
            # Some clients add an id to the response to a call without one.
            call_id = self.first_open(self.unnamed.get(name)) or call_id
        return self.result(call_id=call_id, name=name, parts=parts, status=status)


def _parts_of(content: JsonObject) -> list[JsonObject]:
    """The parts; a single one may come without a list."""
    parts = content.get("parts")
    return [parts] if isinstance(parts, Mapping) else objs(parts)


def _system(content: object) -> str:
    if isinstance(content, str):
        return content
    return join_texts([string(part.get("text")) for part in _parts_of(obj(content))])


def _tools(group: JsonObject) -> list[ToolDefinition]:
    return [
        *(_function(function) for function in objs(group.get("functionDeclarations"))),
        *(hosted_tool(name, {name: group[name]}, dialect=DIALECT) for name in group if name != "functionDeclarations"),
    ]


def _function(function: JsonObject) -> ToolDefinition:
    schema = as_json_schema(obj(function.get("parametersJsonSchema")) or obj(function.get("parameters")))
    return read_function(function, "parameters", "parametersJsonSchema", schema=schema)


def _other_configuration(body: JsonObject) -> JsonDict:
    known = ("maxOutputTokens", "temperature", "topP", "stopSequences")
    rest = extra_of(obj(body.get("generationConfig")), *known)
    tools = obj(body.get("toolConfig"))
    calling = obj(tools.get("functionCallingConfig"))
    # A choice among several functions, or of an unknown mode, has no equivalent in `CallOptions`.
    is_known = calling.get("mode") in (None, UNSPECIFIED, *CHOICES)
    is_read = is_known and len(items(calling.get("allowedFunctionNames"))) < 2
    choice = extra_of(tools, "functionCallingConfig") | ({} if is_read else {"functionCallingConfig": calling})
    return without_empty(generationConfig=rest, toolConfig=choice)


def _options(body: JsonObject) -> CallOptions:
    configuration = obj(body.get("generationConfig"))
    calling = obj(obj(body.get("toolConfig")).get("functionCallingConfig"))
    thinking = obj(configuration.get("thinkingConfig"))
    budget = as_int(thinking.get("thinkingBudget"))
    names = items(calling.get("allowedFunctionNames"))
    schema = as_json_schema(obj(configuration.get("responseJsonSchema")) or obj(configuration.get("responseSchema")))
    is_json = configuration.get("responseMimeType") == "application/json"
    return CallOptions(
        model=string(body.get("model")).removeprefix("models/"),
        max_tokens=as_int(configuration.get("maxOutputTokens")),
        temperature=as_float(configuration.get("temperature")),
        top_p=as_float(configuration.get("topP")),
        stop=tuple(string(word) for word in items(configuration.get("stopSequences"))),
        tool_choice=CHOICES.get(string(calling.get("mode")), ""),
        tool_name=string(names[0]) if len(names) == 1 else "",
        reasoning_effort=string(thinking.get("thinkingLevel")).lower() or effort_for(budget),
        form=AnswerForm(schema=schema or None) if is_json else None,
    )
