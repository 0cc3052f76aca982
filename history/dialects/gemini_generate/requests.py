"""A request that a client of Gemini sent, read into entries. Calls without an id get one made from what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from history.dialects.encoder import HOSTED, HOSTED_BY
from history.dialects.gemini_generate.encoding import SENTINEL
from history.dialects.gemini_generate.replies import DIALECT, PROVIDER
from history.dialects.gemini_generate.schemas import as_json_schema
from history.dialects.gemini_generate.spelling import in_one_spelling
from history.dialects.json_access import compact, items, number, obj, objs, string, whole, without_empty
from history.dialects.request_decoder import (
    RequestDecoder,
    arguments_text,
    check_request,
    effort_for,
    extra_of,
    from_base64,
    other,
)
from history.dialects.types import AnswerForm, CallOptions, DecodedRequest, ToolChoice, joined
from history.entries import Media, ModelOutput, Part, Reasoning, Text, ToolDefinition, ToolRequest, ToolResult

KNOWN = ("model", "contents", "systemInstruction", "tools", "toolConfig", "generationConfig")
CHOICES: dict[str, ToolChoice] = {"AUTO": "auto", "NONE": "none", "ANY": "required"}
UNSAID = "MODE_UNSPECIFIED"


def decode_request(body: Mapping[str, Any], *, provider: str = "", at: datetime | None = None) -> DecodedRequest:
    """The model's name is in the path of a Gemini request, not in its body: the caller adds it."""
    body = check_request(in_one_spelling(body), needs=("contents",))
    reading = _Reading(provider=provider or PROVIDER, at=at)
    given = body.get("contents")
    contents = [given] if isinstance(given, str | Mapping) else items(given)
    for content in reading.each([_written_out(content) for content in contents]):
        reading.content(content)
    options = _options(body)
    return reading.decoded(
        body,
        known=KNOWN,
        system=_system(body.get("systemInstruction")),
        tools=tuple(tool for group in objs(body.get("tools")) for tool in _tools(group)),
        model=string(body.get("model")).removeprefix("models/"),
        options=options,
        read=frozenset(f"generationConfig.{name}" for name in _read(options)),
        session_hints={"session_id": session} if (session := string(body.get("session_id"))) else {},
        extra=_other_configuration(body),
    )


def _written_out(content: Any) -> Any:
    """A bare text is a content, too."""
    return {"parts": [{"text": content}]} if isinstance(content, str) else content


class _Reading(RequestDecoder):
    def __init__(self, *, provider: str, at: datetime | None) -> None:
        super().__init__(provider=provider, at=at)
        # Calls that came without an id, by name: the ids that were made for them.
        self.unnamed: dict[str, deque[str]] = {}

    def content(self, content: Mapping[str, Any]) -> None:
        given = content.get("parts")
        parts = [given] if isinstance(given, Mapping) else objs(given)
        if content.get("role") == "model":
            self.go_on_answering(parts)
            return
        answers = [part for part in parts if obj(part.get("functionResponse"))]
        self.find([self.response(obj(part["functionResponse"])) for part in answers])
        others = [part for part in parts if not obj(part.get("functionResponse"))]
        self.hear([said for part in others for said in self.said(part)])

    def go_on_answering(self, parts: list[Mapping[str, Any]]) -> None:
        """Google's SDK keeps each chunk of a stream as a content of its own: those in a row are one answer."""
        latest = self.entries[-1] if self.entries else None
        if not isinstance(latest, ModelOutput):
            self.calls.clear()
            self.unnamed.clear()
            self.answer([said for part in parts for said in self.said(part)])
            return
        more = [said for part in parts for said in self.said(part)]
        self.grow(latest.parts, more, self._whole_answer)

    def _whole_answer(self) -> ModelOutput:
        return ModelOutput(at=self.at, parts=tuple(_in_one_piece(self.growing)), provider=self.provider)

    def said(self, part: Mapping[str, Any]) -> list[Part]:
        """A signature is a part of its own, in the same place as in a reply."""
        signature = string(part.get("thoughtSignature"))
        signature = "" if signature == SENTINEL else signature
        if part.get("thought") is True:
            return [Reasoning(text=string(part.get("text")), signature=signature, provider=self.provider)]
        signed: list[Part] = [Reasoning(signature=signature, provider=self.provider)] if signature else []
        said = self.part(part)
        if said is None:
            return signed
        return [said, *signed] if isinstance(said, Text) else [*signed, said]

    def part(self, part: Mapping[str, Any]) -> Part | None:
        if isinstance(text := part.get("text"), str):
            return Text(text=text, extra=extra_of(part, "text", "thoughtSignature")) if text else None
        if call := obj(part.get("functionCall")):
            return self.asked(call)
        return self.attachment(part) or other(part)

    def asked(self, call: Mapping[str, Any]) -> ToolRequest:
        """Without an id it gets one that is made from what is asked, as in the reply."""
        given, name, arguments = string(call.get("id")), string(call.get("name")), arguments_text(call.get("args"))
        request = self.call(call_id=given, name=name, arguments=arguments)
        if not given:
            self.unnamed.setdefault(name, deque()).append(request.call_id)
        return request

    def answered(self, call_id: str, name: str) -> str:
        """Which call a response is for. Some clients give an id to the response of a call that has none."""
        if not call_id or call_id in self.calls:
            return call_id
        return self.first_open(self.unnamed.get(name)) or call_id

    def attachment(self, part: Mapping[str, Any]) -> Media | None:
        inline, file = obj(part.get("inlineData")), obj(part.get("fileData"))
        name = string(inline.get("displayName")) or string(file.get("displayName"))
        if (content := from_base64(inline.get("data"))) is not None:
            return self.keep(content, media_type=string(inline.get("mimeType")), name=name)
        url, media_type = string(file.get("fileUri")), string(file.get("mimeType"))
        return Media(media_type=media_type, url=url, name=name) if url else None

    def response(self, response: Mapping[str, Any]) -> ToolResult:
        given = response.get("response")
        told = obj(given)
        error, output = told.get("error"), told.get("output", told.get("result"))
        if error and "output" not in told:
            parts = _told(error)
        else:
            parts = _told(given if output is None else output)
        parts += [media for part in objs(response.get("parts")) if (media := self.attachment(part))]
        status: Any = "failed" if error and "output" not in told else "success"
        name = string(response.get("name"))
        call_id = self.answered(string(response.get("id")), name)
        return self.result(call_id=call_id, name=name, parts=parts, status=status)


def _in_one_piece(parts: list[Part]) -> list[Part]:
    """Texts in a row are one."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, Text) and isinstance(last, Text) and not (part.extra or last.extra):
            whole[-1] = Text(text=last.text + part.text)
        else:
            whole.append(part)
    return whole


def _told(value: Any) -> list[Part]:
    text = value if isinstance(value, str) else compact(value)
    return [Text(text=text)] if text else []


def _system(given: Any) -> str:
    if isinstance(given, str):
        return given
    parts = obj(given).get("parts")
    found = [parts] if isinstance(parts, Mapping) else objs(parts)
    return joined([string(part.get("text")) for part in found])


def _tools(group: Mapping[str, Any]) -> list[ToolDefinition]:
    """A group declares functions, and beside them names what Google runs itself."""
    declared = objs(group.get("functionDeclarations"))
    hosted = [name for name in group if name != "functionDeclarations"]
    return [
        *(_function(function) for function in declared),
        *(ToolDefinition(name=name, extra={HOSTED: {name: group[name]}, HOSTED_BY: DIALECT}) for name in hosted),
    ]


def _function(function: Mapping[str, Any]) -> ToolDefinition:
    schema = as_json_schema(obj(function.get("parametersJsonSchema")) or obj(function.get("parameters")))
    known = ("name", "description", "parameters", "parametersJsonSchema")
    return ToolDefinition(
        name=string(function.get("name")),
        description=string(function.get("description")),
        parameters=schema,
        extra=extra_of(function, *known),
    )


def _other_configuration(body: Mapping[str, Any]) -> dict[str, Any]:
    known = ("maxOutputTokens", "temperature", "topP", "stopSequences")
    rest = extra_of(obj(body.get("generationConfig")), *known)
    return without_empty(generationConfig=rest, toolConfig=_other_choice(obj(body.get("toolConfig"))))


def _other_choice(given: Mapping[str, Any]) -> dict[str, Any]:
    """Only Gemini lets a model choose among several of its functions; other modes may come."""
    calling = obj(given.get("functionCallingConfig"))
    is_read = len(items(calling.get("allowedFunctionNames"))) < 2 and calling.get("mode") in (None, UNSAID, *CHOICES)
    return extra_of(given, "functionCallingConfig") | ({} if is_read else {"functionCallingConfig": calling})


def _options(body: Mapping[str, Any]) -> CallOptions:
    given = obj(body.get("generationConfig"))
    calling = obj(obj(body.get("toolConfig")).get("functionCallingConfig"))
    names = items(calling.get("allowedFunctionNames"))
    return CallOptions(
        model=string(body.get("model")).removeprefix("models/"),
        max_tokens=whole(given.get("maxOutputTokens")),
        temperature=number(given.get("temperature")),
        top_p=number(given.get("topP")),
        stop=tuple(string(word) for word in items(given.get("stopSequences"))),
        tool_choice=CHOICES.get(string(calling.get("mode")), ""),
        tool_name=string(names[0]) if len(names) == 1 else "",
        reasoning_effort=_effort(obj(given.get("thinkingConfig"))),
        form=_form(given),
    )


def _effort(given: Mapping[str, Any]) -> str:
    return string(given.get("thinkingLevel")).lower() or effort_for(whole(given.get("thinkingBudget")))


def _form(given: Mapping[str, Any]) -> AnswerForm | None:
    schema = as_json_schema(obj(given.get("responseJsonSchema")) or obj(given.get("responseSchema")))
    is_json = given.get("responseMimeType") == "application/json"
    return AnswerForm(schema=schema or None) if is_json else None


def _read(options: CallOptions) -> Iterator[str]:
    if options.reasoning_effort:
        yield "thinkingConfig"
    if options.form:
        yield from ("responseMimeType", "responseSchema", "responseJsonSchema")
