"""Encoder of requests to Gemini. docs/internals/dialects.md has the rules of responses and signatures."""

from collections.abc import Iterable
from mimetypes import guess_type
from urllib.parse import quote, urlsplit

from history.context.values import Context, ContextEntry, Role
from history.dialects.gemini_generate.reply_reader import DIALECT
from history.dialects.gemini_generate.reply_writer import signature_parts
from history.dialects.json_access import without_empty
from history.dialects.request_encoder import EncodedEntry, LoadedMedia, RequestEncoder, base64_of, media_in
from history.dialects.types import LossCode
from history.entries import JsonDict, JsonObject, Media, Part, Reasoning, ToolRequest, ToolResult

SENTINEL = "skip_thought_signature_validator"  # Gemini documents this for a call whose signature is lost
LEVELS = {"minimal": "MINIMAL", "low": "LOW", "medium": "MEDIUM", "high": "HIGH", "max": "HIGH", "xhigh": "HIGH"}
MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY"}


class GeminiRequestEncoder(RequestEncoder):
    dialect = DIALECT
    id_limit = 128
    schema_field = "parametersJsonSchema"
    closed = ()
    text_fields = {}

    def request(self, context: Context, encoded: list[EncodedEntry]) -> tuple[str, JsonDict]:
        system = {"systemInstruction": {"parts": [{"text": context.system}]}} if context.system else {}
        body = {**system, "contents": self.contents(encoded), **self.tools(context), **self.configuration()}
        model = quote(self.options.model.removeprefix("models/"), safe="", errors="replace")
        method = "streamGenerateContent?alt=sse" if self.options.stream else "generateContent"
        return f"/v1beta/models/{model}:{method}", body

    def contents(self, encoded: list[EncodedEntry]) -> list[JsonDict]:
        """Consecutive entries of a role are one content; a switch separates user text from function responses."""
        written: list[JsonDict] = []
        for entry, parts in encoded:
            role = "model" if entry.role is Role.MODEL_OUTPUT else "user"
            for part in parts:
                last: JsonDict = written[-1] if written else {"role": "", "parts": [{}]}
                ends_responses = "functionResponse" in last["parts"][-1] and "functionResponse" not in part
                if last["role"] != role or (ends_responses and self.switches.separate_user_text):
                    written.append({"role": role, "parts": [part]})
                else:
                    last["parts"].append(part)
        return written

    def instruction(self, entry: ContextEntry) -> list[JsonDict]:
        return [self.text(self.system_as_text(entry))]

    def input(self, entry: ContextEntry) -> list[JsonDict]:
        return self.blocks(self.input_parts(entry))

    def answer(self, entry: ContextEntry) -> list[JsonDict]:
        written: list[JsonDict] = []
        signature = ""
        for part in entry.parts:
            if isinstance(part, Reasoning):
                if self.may_return(part):
                    _sign(written, signature)
                    signature = part.signature
            elif isinstance(part, ToolRequest):
                written.append(self.call(part, signature, is_first=not any("functionCall" in part for part in written)))
                signature = ""
            elif blocks := self.blocks([part]):
                _sign(written, signature)
                written += blocks
                signature = ""
        _sign(written, signature)
        return written

    def call(self, call: ToolRequest, signature: str, *, is_first: bool) -> JsonDict:
        if not signature and is_first and self.switches.signature_sentinel:
            self.lose(LossCode.SIGNATURE_REPLACED, name=call.name)
            signature = SENTINEL
        call_id = self.call_id(call.call_id)
        function = {"id": call_id, "name": call.name, "args": self.arguments_object(call)}
        return {"functionCall": function, **without_empty(thoughtSignature=signature)}

    def results(self, entry: ContextEntry) -> list[JsonDict]:
        responses, moved = [], []
        for result in entry.results:
            responses.append(self.response(result))
            if not self.switches.media_in_results:
                moved += self.blocks(self.moved_media(result))
        screen = [self.text(text)] if (text := self.live_screen(entry)) else []
        return [*responses, *moved, *screen]

    def response(self, result: ToolResult) -> JsonDict:
        text = self.result_text(result)
        response = {"output": text} if result.status == "success" else {"error": text}
        call_id = self.call_id(result.call_id)
        function: JsonDict = {"id": call_id, "name": result.name, "response": response}
        if self.switches.media_in_results and (media := media_in(result)):
            function["parts"] = [part for part in self.blocks(media) if "text" not in part]
        self.leave_out(result.parts, except_for=(Media,))
        return {"functionResponse": {name: value for name, value in function.items() if value != []}}

    def blocks(self, parts: Iterable[Part]) -> list[JsonDict]:
        return [self.media(*part) if isinstance(part, LoadedMedia) else part for part in self.sendable(parts)]

    def media(self, media: Media, content: bytes | None) -> JsonDict:
        if content is None:
            return {"fileData": {**without_empty(mimeType=_exact_type(media)), "fileUri": media.url}}
        return {"inlineData": {"mimeType": media.media_type, "data": base64_of(content)}}

    def tools(self, context: Context) -> JsonDict:
        offered = self.offered_tools(context.tools)
        functions = [self.function(tool) for tool, hosted in offered if not hosted]
        tools: list[JsonObject] = [{"functionDeclarations": functions}] if functions else []
        tools += [hosted for _, hosted in offered if hosted]
        if functions and self.options.parallel_tools is False:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="parallel_tool_calls")
        return {"tools": tools, **self.tool_choice(self.forced_tool(offered))} if tools else {}

    def tool_choice(self, forced: str) -> JsonDict:
        mode, names = MODES.get(self.options.tool_choice), None
        if forced:
            mode, names = "ANY", [forced]
        if not mode:
            return {}
        return {"toolConfig": {"functionCallingConfig": {"mode": mode, **without_empty(allowedFunctionNames=names)}}}

    def configuration(self) -> JsonDict:
        options = self.options
        level = LEVELS.get(options.reasoning_effort)
        if options.reasoning_effort and not level:
            self.lose(LossCode.OPTION_NOT_CARRIED, name="reasoning_effort")
        configuration = without_empty(
            maxOutputTokens=options.max_tokens,
            temperature=options.temperature,
            topP=options.top_p,
            stopSequences=list(options.stop),
            thinkingConfig={"thinkingLevel": level, "includeThoughts": True} if level else None,
            responseMimeType="application/json" if options.form else None,
            responseJsonSchema=options.form.schema if options.form else None,
        )
        return without_empty(generationConfig=configuration)


def _exact_type(media: Media) -> str:
    """Some clients send ``image/*``: the URL may show the exact type, or Google detects it."""
    if not media.media_type.endswith("/*"):
        return media.media_type
    guessed = guess_type(urlsplit(media.url).path)[0] or ""
    return guessed if guessed.startswith(media.media_type[:-1]) else ""


def _sign(parts: list[JsonDict], signature: str) -> None:
    """A signature without a call after it belongs to the text before it, or to an empty text."""
    if signature and parts and parts[-1].get("text") and "thoughtSignature" not in parts[-1]:
        parts[-1]["thoughtSignature"] = signature
    else:
        parts += signature_parts(signature)
