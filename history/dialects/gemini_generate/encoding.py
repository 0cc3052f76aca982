"""Request encoder for Gemini.

The rules that matter: one content with exactly as many functionResponses as there were calls; a signature goes back on
the part that follows it in our record, above all on the first call of a turn; thoughts themselves are never sent back.
"""

from __future__ import annotations

from mimetypes import guess_type
from typing import Any
from urllib.parse import quote, urlsplit

from history.context import Context
from history.context.entries import ContextEntry, Role
from history.dialects.encoder import Json, Writing, base64_of, media_in, schema_of, with_system_in_first_input
from history.dialects.gemini_generate.replies import DIALECT, PROVIDER, signed
from history.dialects.json_access import without_empty
from history.dialects.types import CallOptions, Encoded, LossCode
from history.entries import Media, Reasoning, ToolRequest, ToolResult

# What Gemini documents for a call whose signature is lost.
SENTINEL = "skip_thought_signature_validator"
ID_LIMIT = 128
LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH", "xhigh": "HIGH"}
MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


def encode(context: Context, options: CallOptions) -> Encoded:
    writer = _Writer(options, dialect=DIALECT, vendor=PROVIDER)
    if writer.switches.system_role == "remove":
        context = with_system_in_first_input(context)
    context = writer.with_something_said(context)
    system = {"systemInstruction": {"parts": [{"text": context.system}]}} if context.system else {}
    body = {**system, "contents": writer.contents(context), **writer.tools(context), **writer.configuration()}
    return writer.encoded(context, body, path=path_for(options.model, stream=options.stream))


def path_for(model: str, *, stream: bool) -> str:
    name = quote(model.removeprefix("models/"), safe="", errors="replace")
    return f"/v1beta/models/{name}:" + ("streamGenerateContent?alt=sse" if stream else "generateContent")


class _Writer(Writing):
    closed = ()

    def contents(self, context: Context) -> list[Json]:
        """What one side said in a row is one content; only user text may be kept apart from function responses."""
        written: list[Json] = []
        for entry in self.entries(context):
            role, groups = self.content(entry)
            for parts in groups:
                if written and written[-1]["role"] == role and not self.stays_apart(written[-1], parts):
                    written[-1]["parts"] += parts
                elif parts:
                    written.append({"role": role, "parts": parts})
        return written

    def stays_apart(self, before: Json, parts: list[Json]) -> bool:
        if not self.switches.separate_user_text:
            return False
        return "functionResponse" in before["parts"][-1] and not any("functionResponse" in part for part in parts)

    def content(self, entry: ContextEntry) -> tuple[str, list[list[Json]]]:
        """The role, and the parts in groups that may become contents of their own."""
        if entry.role is Role.MODEL_OUTPUT:
            role, groups = "model", [self.answer(entry)]
        elif entry.role is Role.TOOL_RESULT:
            screen = [self.text(text)] if (text := self.live_screen(entry)) else []
            role, groups = "user", [*self.results(entry), screen]
        elif entry.role is Role.SYSTEM:
            role, groups = "user", [[self.text(self.instruction_as_text(entry))]]
        else:
            role, groups = "user", [self.input_blocks(entry)]
        if not any(groups):
            self.lose(LossCode.MESSAGE_LEFT_OUT)
        return role, groups

    def answer(self, entry: ContextEntry) -> list[Json]:
        written: list[Json] = []
        signature = ""
        for part in entry.parts:
            if isinstance(part, Reasoning):
                if self.may_return(part):
                    _sign(written, signature)
                    signature = part.signature
            elif isinstance(part, ToolRequest):
                written.append(self.call(part, signature, is_first=not _has_call(written)))
                signature = ""
            elif said := self.block(part):
                _sign(written, signature)
                written.append(said)
                signature = ""
        _sign(written, signature)
        return written

    def call(self, call: ToolRequest, signature: str, *, is_first: bool) -> Json:
        if not signature and is_first and self.switches.signature_sentinel:
            self.lose(LossCode.SIGNATURE_REPLACED, name=call.name)
            signature = SENTINEL
        call_id = self.call_id(call.call_id, limit=ID_LIMIT)
        function = {"id": call_id, "name": call.name, "args": self.arguments_object(call)}
        return {"functionCall": function, **without_empty(thoughtSignature=signature)}

    def results(self, entry: ContextEntry) -> list[list[Json]]:
        """The responses, and apart from them media that the model does not take inside."""
        moved: list[Json] = []
        responses = []
        for result in entry.results:
            responses.append(self.response(result))
            if not self.switches.media_in_results:
                moved += self.moved_media(result)
        return [responses, moved]

    def response(self, result: ToolResult) -> Json:
        text = self.result_text(result)
        told = {"output": text} if result.status == "success" else {"error": text}
        call_id = self.call_id(result.call_id, limit=ID_LIMIT)
        function: Json = {"id": call_id, "name": result.name, "response": told}
        if self.switches.media_in_results and (media := media_in(result)):
            function["parts"] = [part for part in self.blocks(media) if "text" not in part]
        self.leave_out_others(result.parts, taken=(Media,))
        return {"functionResponse": {name: value for name, value in function.items() if value != []}}

    def text(self, text: str) -> Json:
        return {"text": text}

    def media(self, media: Media) -> Json:
        content = self.bytes_of(media)
        self.without_detail(media)
        if content is not None:
            return {"inlineData": {"mimeType": media.media_type, "data": base64_of(content)}}
        if media.url:
            return {"fileData": {**without_empty(mimeType=_exact_type(media)), "fileUri": media.url}}
        return self.text(self.note(media, LossCode.MEDIA_UNAVAILABLE))

    def tools(self, context: Context) -> Json:
        given = list(self.offered(context.tools))
        functions: list[Json] = []
        offered: list[Any] = []
        for tool, hosted in given:
            if hosted:
                offered.append(hosted)
            else:
                described = without_empty(description=tool.description)
                functions.append({"name": tool.name, **described, "parametersJsonSchema": schema_of(tool)})
        if functions and self.options.parallel_tools is False:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="parallel_tool_calls")
        if functions:
            offered.insert(0, {"functionDeclarations": functions})
        return {"tools": offered, **self.tool_choice(self.forced(tool for tool, _ in given))} if offered else {}

    def tool_choice(self, forced: str) -> Json:
        mode, names = MODES.get(self.options.tool_choice), None
        if forced:
            mode, names = "ANY", [forced]
        if not mode:
            return {}
        return {"toolConfig": {"functionCallingConfig": {"mode": mode, **without_empty(allowedFunctionNames=names)}}}

    def configuration(self) -> Json:
        options = self.options
        level = LEVELS.get(options.reasoning_effort)
        if options.reasoning_effort and not level:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="reasoning_effort")
        found = without_empty(
            maxOutputTokens=options.max_tokens,
            temperature=options.temperature,
            topP=options.top_p,
            stopSequences=list(options.stop),
            thinkingConfig={"thinkingLevel": level, "includeThoughts": True} if level else None,
            responseMimeType="application/json" if options.form else None,
            responseJsonSchema=options.form.schema if options.form else None,
        )
        return without_empty(generationConfig=found)


def _exact_type(media: Media) -> str:
    """Others name pictures without saying of which type: then the address says it, or Google looks for itself."""
    if not media.media_type.endswith("/*"):
        return media.media_type
    guessed = guess_type(urlsplit(media.url).path)[0] or ""
    return guessed if guessed.startswith(media.media_type[:-1]) else ""


def _has_call(parts: list[Json]) -> bool:
    return any("functionCall" in part for part in parts)


def _sign(parts: list[Json], signature: str) -> None:
    """A signature that no call follows belongs to the text before it; where there is none, it has an empty one."""
    if signature and parts and parts[-1].get("text") and "thoughtSignature" not in parts[-1]:
        parts[-1]["thoughtSignature"] = signature
    else:
        parts += signed(signature)
