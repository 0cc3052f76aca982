"""Base class of request encoders: options, parts, media, tools and the list of losses."""

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, NamedTuple

from history.context.values import Context, ContextEntry, Role
from history.dialects.json_access import string, without_empty
from history.dialects.tools import (
    HOSTED,
    HOSTED_BY,
    parse_arguments,
    substitutes_by_name,
    substitutes_for,
    wrap_arguments,
)
from history.dialects.types import CallOptions, Loss, LossCode, join_texts
from history.entries import (
    JsonDict,
    JsonObject,
    Media,
    OtherPart,
    Part,
    Reasoning,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    text_of,
    thaw,
)

GOOGLE_URLS = ("gs://", "https://generativelanguage.googleapis.com/")  # URLs that Google opens for its own models only


class LoadedMedia(NamedTuple):
    """Media of which the bytes, the URL or both are known."""

    media: Media
    content: bytes | None


EncodedEntry = tuple[ContextEntry, list[JsonDict]]


class RequestEncoder:
    """Encodes one request. A dialect writes texts, media and entries in its format."""

    dialect: ClassVar[str]
    # Call ids: their greatest length, and the characters that this vendor rejects.
    id_limit: ClassVar[int]
    invalid_in_ids: ClassVar[re.Pattern[str] | None] = None
    text_fields: ClassVar[JsonDict] = {"type": "text"}  # of a text block, besides the text
    function_fields: ClassVar[JsonDict] = {}  # of a function, besides its name, description and schema
    schema_field: ClassVar[str] = "parameters"  # the field of a function with the schema of its arguments
    closed: ClassVar[tuple[str, ...]] = GOOGLE_URLS  # prefixes of URLs that this vendor cannot open
    rejects_blank_text: ClassVar[bool] = False
    has_detail: ClassVar[bool] = False  # only OpenAI's dialects have a level of detail for images

    def __init__(self, options: CallOptions, *, vendor: str) -> None:
        self.options, self.switches = options, options.switches
        self.provider = options.provider or vendor
        self.losses: list[Loss] = []
        self.supplied: JsonDict = {}
        self.seq = 0
        self._ids: dict[str, str] = {}

    def lose(self, code: LossCode, **values: object) -> None:
        self.losses.append(Loss(code=code, seq=self.seq, values=values))

    def adapted(self, context: Context) -> Context:
        return self.with_any_input(self.with_system_role(context))

    def instruction(self, entry: ContextEntry) -> list[JsonDict]:
        """An instruction within the conversation. Each method for an entry returns its blocks, or its messages."""
        raise NotImplementedError

    def input(self, entry: ContextEntry) -> list[JsonDict]:
        raise NotImplementedError

    def answer(self, entry: ContextEntry) -> list[JsonDict]:
        raise NotImplementedError

    def results(self, entry: ContextEntry) -> list[JsonDict]:
        raise NotImplementedError

    def request(self, context: Context, encoded: list[EncodedEntry]) -> tuple[str, JsonDict]:
        """The path, after the base URL of the vendor's own SDK, and the body."""
        raise NotImplementedError

    def text(self, text: str) -> JsonDict:
        return {**self.text_fields, "text": text}

    def system_as_text(self, entry: ContextEntry) -> str:
        """An instruction within the conversation, for vendors without a role for it."""
        self.lose(LossCode.SYSTEM_AS_TEXT)
        return f"<system>\n{text_of(entry.parts)}\n</system>"

    def input_parts(self, entry: ContextEntry) -> tuple[Part, ...]:
        return (*entry.parts, Text(text=self.live_screen(entry)))

    def sendable(self, parts: Iterable[Part]) -> Iterator[JsonDict | LoadedMedia]:
        """Blocks of texts, and attachments for blocks. Empty texts and parts of other types are left out."""
        for part in parts:
            if isinstance(part, Media):
                yield self._load_media(part)
            elif not isinstance(part, Text):
                self.leave_out([part])
            elif part.text.strip() if self.rejects_blank_text else part.text:
                yield self.text(part.text)

    def _load_media(self, media: Media) -> JsonDict | LoadedMedia:
        if media.media_type == "image/jpg":  # a common mistake that only OpenAI accepts
            media = replace(media, media_type="image/jpeg")
        content = None
        if media.sha256 and self.options.media is not None:
            with suppress(LookupError):
                content = self.options.media(media.sha256)
        if content is None and media.url.startswith(self.closed):
            return self.note(media)
        if not self.has_detail and detail_of(media) != "auto":
            self.lose(LossCode.OPTION_NOT_CARRIED, name="detail")
        if content is None and not media.url:
            return self.note(media, LossCode.MEDIA_UNAVAILABLE)
        return LoadedMedia(media, content)

    def moved_media(self, result: ToolResult) -> tuple[Part, ...]:
        """Media of a result for a message after it, where results cannot carry media."""
        if not (media := media_in(result)):
            return ()
        self.lose(LossCode.MEDIA_MOVED, tool=result.name)
        return (Text(text=f"Media from the result of {result.name}:"), *media)

    def with_any_input(self, context: Context) -> Context:
        """Most vendors reject an instruction without messages: it becomes the first input."""
        if context.entries or not context.system:
            return context
        self.lose(LossCode.SYSTEM_AS_TEXT)
        entry = ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=context.system),))
        return replace(context, system="", entries=(entry,))

    def with_system_role(self, context: Context) -> Context:
        """For models without a system role, the instruction comes before the first input."""
        place = next((place for place, entry in enumerate(context.entries) if entry.role is Role.MODEL_INPUT), None)
        if self.switches.system_role != "remove" or not context.system or place is None:
            return context
        entries = list(context.entries)
        entries[place] = replace(entries[place], parts=(Text(text=context.system), *entries[place].parts))
        return replace(context, entries=tuple(entries), system="")

    def live_screen(self, entry: ContextEntry) -> str:
        return f"[Live Screen]\n{entry.live_screen}" if entry.live_screen and self.options.include_live_screen else ""

    def result_text(self, result: ToolResult) -> str:
        return join_texts([result.text, missing_error(result)])

    def lose_status(self, result: ToolResult) -> None:
        if result.status != "success":
            self.lose(LossCode.STATUS_NOT_CARRIED, name=result.name, status=result.status)

    def may_return(self, part: Reasoning) -> bool:
        """Whether this reasoning goes back: it is signed by the provider of this call."""
        if not part.signature and not part.redacted:
            self.lose(LossCode.REASONING_UNSIGNED)
        elif part.provider != self.provider:
            self.lose(LossCode.REASONING_FOREIGN, provider=part.provider or "an unknown provider")
        else:
            return True
        return False

    def arguments_object(self, call: ToolRequest) -> JsonDict:
        arguments = parse_arguments(call.arguments)
        if arguments is None:
            self.lose(LossCode.ARGUMENTS_WRAPPED, name=call.name)
            return wrap_arguments(call.arguments)
        return arguments

    def call_id(self, original: str) -> str:
        """A unique id in the vendor's alphabet and length, the same for a call and its result."""
        if original not in self._ids:
            call_id = self.invalid_in_ids.sub("_", original) if self.invalid_in_ids else original
            if not call_id or len(call_id) > self.id_limit or call_id in self._ids.values():
                digest = hashlib.sha256(original.encode("utf-8", "surrogatepass")).hexdigest()[:8]
                call_id = f"{call_id[: self.id_limit - 9] or 'call'}_{digest}"
            if call_id != original:
                self.lose(LossCode.CALL_ID_CHANGED, given=original, call_id=call_id)
            self._ids[original] = call_id
        return self._ids[original]

    def leave_out(self, parts: Iterable[Part], *, except_for: tuple[type[Part], ...] = ()) -> None:
        """All parts but text and these types."""
        for part in parts:
            if not isinstance(part, (Text, *except_for)):
                self.lose(LossCode.PART_NOT_CARRIED, type=kind_of(part))

    def offered_tools(self, tools: tuple[ToolDefinition, ...]) -> list[tuple[ToolDefinition, JsonObject | None]]:
        """The tools to offer; a hosted tool of this dialect as it is, functions in place of others."""
        offered: list[tuple[ToolDefinition, JsonObject | None]] = []
        by_name, names = substitutes_by_name(tools), set[str]()
        for tool in tools:
            hosted = thaw(tool.extra.get(HOSTED))
            if hosted is None or tool.extra.get(HOSTED_BY) == self.dialect:
                offered.append((tool, hosted))
                continue
            substitutes = list(substitutes_for(hosted))
            if not substitutes:
                self.lose(LossCode.TOOL_NOT_CARRIED, name=tool.name)
            for substitute in substitutes:
                name = substitute.function.name
                if by_name.get(name) != substitute:
                    self.lose(LossCode.TOOL_NOT_CARRIED, name=substitute.name)
                elif name not in names:  # vendors refuse duplicates
                    names.add(name)
                    offered.append((substitute.function, None))
                    if substitute.has_grammar:
                        self.lose(LossCode.OPTION_NOT_CARRIED, name="grammar")
        return offered

    def function(self, tool: ToolDefinition) -> JsonDict:
        """Vendors require a schema of an object; OpenAI also requires `properties`."""
        schema = {"type": "object", "properties": {}, **thaw(tool.parameters)}
        return {
            "name": tool.name,
            **without_empty(description=tool.description),
            self.schema_field: schema,
            **self.function_fields,
        }

    def forced_tool(self, offered: Iterable[tuple[ToolDefinition, object]]) -> str:
        """The tool that must be called; '' if it is not offered, because vendors refuse its name."""
        name = self.options.tool_name
        if not name or any(tool.name == name for tool, _ in offered):
            return name
        self.lose(LossCode.OPTION_NOT_CARRIED, name="tool_choice")
        return ""

    def note(self, media: Media, code: LossCode = LossCode.MEDIA_NOT_CARRIED) -> JsonDict:
        name = media.name or media.type
        self.lose(code, name=name, media_type=media.media_type)
        return self.text(f"[Attachment {name} ({media.media_type}) could not be sent]")

    def text_file(self, media: Media, content: bytes) -> JsonDict:
        """A text file as text, for vendors that accept no files."""
        name = media.name or media.media_type
        self.lose(LossCode.MEDIA_AS_TEXT, name=name, media_type=media.media_type)
        return self.text(f"[File {name}]\n{content.decode('utf-8', 'replace')}")


def detail_of(media: Media) -> str:
    return string(media.extra.get("detail")) or "auto"


def kind_of(part: Part) -> str:
    return str(part.data.get("type", "unknown")) if isinstance(part, OtherPart) else part.type


def missing_error(result: ToolResult) -> str:
    """The error of a result if its text does not contain it."""
    return "" if result.error in result.text else result.error


def media_in(result: ToolResult) -> tuple[Media, ...]:
    return tuple(part for part in result.parts if isinstance(part, Media))


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64_of(content)}"
