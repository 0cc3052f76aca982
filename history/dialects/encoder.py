"""Base class of request encoders: options, media bytes, list of losses."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from history.context import Context
from history.context.entries import ContextEntry, Role
from history.dialects.custom_tools import StandIn, stand_ins_for
from history.dialects.json_access import obj, parsed, string
from history.dialects.types import CallOptions, Encoded, Loss, LossCode, joined
from history.entries import (
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

Json = dict[str, Any]

# What a tool request is sent as where an object is needed and the model's text is none.
INVALID_JSON = "INVALID_JSON"

# Where a request keeps a tool that a vendor runs itself, and whose it is.
HOSTED, HOSTED_BY = "hosted", "hosted_by"

# Where files lie that Google opens for its own models only.
AT_GOOGLE = ("gs://", "https://generativelanguage.googleapis.com/")


def detail_of(media: Media) -> str:
    """How closely a client of OpenAI's wants a picture to be looked at."""
    return string(media.extra.get("detail")) or "auto"


def arguments_of(text: str) -> dict[str, Any] | None:
    """The arguments as an object; None if they are none."""
    try:
        found = parsed(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) else None


class Writing:
    """One request in the making. `dialect` and `vendor` are whose language this is.

    A dialect says how a text and media look in it (`text`, `media`); the rest of what all have in common is here.
    """

    # How addresses begin that this vendor cannot open.
    closed: tuple[str, ...] = AT_GOOGLE

    def __init__(self, options: CallOptions, *, dialect: str, vendor: str) -> None:
        self.options, self.switches = options, options.switches
        self.dialect = dialect
        self.provider = options.provider or vendor
        self.losses: list[Loss] = []
        self.supplied: Json = {}
        self.seq = 0
        self._ids: dict[str, str] = {}

    def lose(self, code: LossCode, **values: Any) -> None:
        self.losses.append(Loss(code=code, seq=self.seq, values=values))

    def entries(self, context: Context) -> Iterator[ContextEntry]:
        """One by one; losses are noted to the entry that is being written."""
        for entry in context.entries:
            self.seq = entry.seq
            if entry.role is Role.SYSTEM:
                self.leave_out_others(entry.parts)
            yield entry
        self.seq = 0

    def encoded(self, context: Context, body: dict[str, Any], *, path: str) -> Encoded:
        debug = {}
        if self.options.include_debug:
            debug = {
                "dialect": self.dialect,
                "origins": [list(entry.origin) for entry in context.entries],
                "tokens": context.tokens,
                "repairs": [remark.code.value for remark in context.report.remarks],
                "losses": [loss.code.value for loss in self.losses],
            }
        return Encoded(body=body, path=path, losses=tuple(self.losses), supplied=self.supplied, debug=debug)

    # Parts.

    def text(self, text: str) -> Json:
        raise NotImplementedError

    def media(self, media: Media) -> Json:
        raise NotImplementedError

    def is_nothing(self, text: str) -> bool:
        """Whether a text is better not sent at all."""
        return not text

    def blocks(self, parts: Iterable[Part]) -> list[Json]:
        return [block for part in parts if (block := self.block(part))]

    def block(self, part: Part) -> Json | None:
        """A part of an input or a result; None where there is nothing in it, or no place for it."""
        if isinstance(part, Text):
            return None if self.is_nothing(part.text) else self.text(part.text)
        if isinstance(part, Media):
            part = _rightly_named(part)
            return self.text(self.note(part, LossCode.MEDIA_NOT_CARRIED)) if self.is_closed(part) else self.media(part)
        self.leave_out(part)
        return None

    def input_blocks(self, entry: ContextEntry) -> list[Json]:
        """What somebody said, and what the live screen shows."""
        screen = self.live_screen(entry)
        return [*self.blocks(entry.parts), *([self.text(screen)] if screen else [])]

    def moved_media(self, result: ToolResult) -> list[Json]:
        """Media that a result has no room for, to be sent behind it."""
        media = media_in(result)
        if not media:
            return []
        self.lose(LossCode.MEDIA_MOVED, tool=result.name)
        return [self.text(f"Media from the result of {result.name}:"), *self.blocks(media)]

    # Texts.

    def instruction_as_text(self, entry: ContextEntry) -> str:
        """An instruction in mid-conversation, for those who know of no such thing."""
        self.lose(LossCode.SYSTEM_AS_TEXT)
        return f"<system>\n{text_of(entry.parts)}\n</system>"

    def with_something_said(self, context: Context) -> Context:
        """Most vendors answer no instruction alone: where nothing else was said, it is what somebody says."""
        if context.entries or not context.system:
            return context
        self.lose(LossCode.SYSTEM_AS_TEXT)
        said = ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=context.system),))
        return replace(context, system="", entries=(said,))

    def live_screen(self, entry: ContextEntry) -> str:
        """The text that shows the live screen; the dialect decides where it goes."""
        return f"[Live Screen]\n{entry.live_screen}" if entry.live_screen and self.options.include_live_screen else ""

    def result_text(self, result: ToolResult) -> str:
        """What a result says; an error that its text does not tell is told after it."""
        return joined([result.text, untold_error(result)])

    def without_status(self, result: ToolResult) -> None:
        if result.status != "success":
            self.lose(LossCode.STATUS_NOT_CARRIED, name=result.name, status=result.status)

    # Reasoning.

    def may_return(self, part: Reasoning) -> bool:
        """Whether this goes back: signed, and by the provider that is called."""
        if not self.options.return_reasoning:
            self.lose(LossCode.REASONING_NOT_CARRIED)
        elif not part.signature and not part.redacted:
            self.lose(LossCode.REASONING_UNSIGNED)
        elif part.provider != self.provider:
            self.lose(LossCode.REASONING_FOREIGN, provider=part.provider or "an unknown provider")
        else:
            return True
        return False

    # Calls.

    def arguments_object(self, call: ToolRequest) -> dict[str, Any]:
        found = arguments_of(call.arguments)
        if found is None:
            self.lose(LossCode.ARGUMENTS_WRAPPED, name=call.name)
            return {INVALID_JSON: call.arguments}
        return found

    def call_id(self, given: str, *, limit: int, refused: re.Pattern[str] | None = None) -> str:
        """An id in the form that the vendor takes: one for a call and its result, another for every other call."""
        if given not in self._ids:
            wanted = refused.sub("_", given) if refused else given
            if not wanted or len(wanted) > limit or wanted in self._ids.values():
                mark = hashlib.sha256(given.encode("utf-8", "surrogatepass")).hexdigest()[:8]
                wanted = f"{wanted[: limit - 9] or 'call'}_{mark}"
            if wanted != given:
                self.lose(LossCode.CALL_ID_CHANGED, given=given, call_id=wanted)
            self._ids[given] = wanted
        return self._ids[given]

    # Parts that have no place.

    def leave_out(self, part: OtherPart | Reasoning | ToolRequest | Media) -> None:
        self.lose(LossCode.PART_NOT_CARRIED, type=kind_of(part))

    def leave_out_others(self, parts: Iterable[Part], *, taken: tuple[type[Part], ...] = ()) -> None:
        """All that is neither text, which has a place everywhere, nor of a kind that is taken here."""
        for part in parts:
            if not isinstance(part, Text) and not isinstance(part, taken):
                self.leave_out(part)

    def offered(self, tools: Iterable[ToolDefinition]) -> Iterator[tuple[ToolDefinition, Mapping[str, Any] | None]]:
        """The tools, each with its own form if it is one that this vendor runs."""
        given = tuple(tools)
        taken, told = stand_ins(given), set[str]()
        for tool in given:
            if HOSTED not in tool.extra:
                yield tool, None
            elif tool.extra.get(HOSTED_BY) == self.dialect:
                yield tool, thaw(tool.extra[HOSTED])
            else:
                yield from ((function, None) for function in self.in_place_of(tool, taken, told))

    def forced(self, offered: Iterable[ToolDefinition]) -> str:
        """The tool that must be called; none, if it is one that is not offered here: vendors refuse its name."""
        name = self.options.tool_name
        if not name or any(tool.name == name for tool in offered):
            return name
        self.lose(LossCode.OPTION_NOT_CARRIED, name="tool_choice")
        return ""

    def in_place_of(
        self, tool: ToolDefinition, taken: Mapping[str, StandIn], told: set[str]
    ) -> Iterator[ToolDefinition]:
        """Functions that do for a tool which another vendor has a word for; what cannot be offered is named.

        `told` are the names that the vendor has already: it refuses one that comes twice.
        """
        found = list(stand_ins_for(tool.extra[HOSTED]))
        for one in found:
            if taken.get(one.function.name) != one:
                self.lose(LossCode.TOOL_NOT_CARRIED, name=one.name)
                continue
            if one.function.name in told:
                continue
            told.add(one.function.name)
            if one.grammar:
                self.lose(LossCode.OPTION_NOT_CARRIED, name="grammar")
            yield one.function
        if not found:
            self.lose(LossCode.TOOL_NOT_CARRIED, name=tool.name)

    # Media.

    def is_closed(self, media: Media) -> bool:
        """Whether all that there is of it is an address that only another vendor opens."""
        return media.url.startswith(self.closed) and self.bytes_of(media) is None

    def bytes_of(self, media: Media) -> bytes | None:
        if not media.sha256 or self.options.media is None:
            return None
        try:
            return self.options.media(media.sha256)
        except LookupError:
            return None

    def without_detail(self, media: Media) -> None:
        """How closely to look at a picture is a word of OpenAI's."""
        if detail_of(media) != "auto":
            self.lose(LossCode.OPTION_NOT_CARRIED, name="detail")

    def note(self, media: Media, code: LossCode) -> str:
        """What stands in place of media that cannot be sent."""
        name = media.name or media.type
        self.lose(code, name=name, media_type=media.media_type)
        return f"[Attachment {name} ({media.media_type}) could not be sent]"

    def text_file(self, media: Media, content: bytes) -> str:
        """A text file as text, for those who take no files."""
        name = media.name or media.media_type
        self.lose(LossCode.MEDIA_AS_TEXT, name=name, media_type=media.media_type)
        return f"[File {name}]\n{content.decode('utf-8', 'replace')}"


def _rightly_named(media: Media) -> Media:
    """Many write the type of a JPEG as its files are called, which OpenAI takes and others refuse."""
    return replace(media, media_type="image/jpeg") if media.media_type == "image/jpg" else media


def kind_of(part: Part) -> str:
    """What a part is called where it is named as lost."""
    return str(part.data.get("type", "unknown")) if isinstance(part, OtherPart) else part.type


def untold_error(result: ToolResult) -> str:
    return "" if result.error in result.text else result.error


def media_in(result: ToolResult) -> tuple[Media, ...]:
    return tuple(part for part in result.parts if isinstance(part, Media))


def base64_of(content: bytes) -> str:
    return base64.b64encode(content).decode("ascii")


def data_url(media_type: str, content: bytes) -> str:
    return f"data:{media_type};base64,{base64_of(content)}"


def schema_of(tool: ToolDefinition) -> dict[str, Any]:
    """A tool's parameters; vendors insist on an object, OpenAI also on its properties where there are none."""
    return {"type": "object", "properties": {}, **thaw(tool.parameters)}


def stand_ins(tools: Sequence[ToolDefinition]) -> dict[str, StandIn]:
    """Which functions stand in for tools, by their names: no name is given twice, and the caller's own come first."""
    own = {tool.name for tool in tools if HOSTED not in tool.extra}
    found: dict[str, StandIn] = {}
    for tool in tools:
        for one in stand_ins_for(obj(tool.extra.get(HOSTED))):
            if one.function.name not in own:
                found.setdefault(one.function.name, one)
    return found


def taking_text(tools: Sequence[ToolDefinition]) -> frozenset[str]:
    """The names of the tools that are called with plain text."""
    return frozenset(name for name, one in stand_ins(tools).items() if one.takes_text)


def first_input(entries: Sequence[ContextEntry]) -> int | None:
    return next((place for place, entry in enumerate(entries) if entry.role is Role.MODEL_INPUT), None)


def with_system_in_first_input(context: Context) -> Context:
    """For models that know no instruction: it stands before the first thing that the user says."""
    place = first_input(context.entries)
    if not context.system or place is None:
        return context
    entry = context.entries[place]
    parts: tuple[Part, ...] = (Text(text=context.system), *entry.parts)
    prefixed = ContextEntry(
        role=entry.role, parts=parts, results=entry.results, live_screen=entry.live_screen, origin=entry.origin
    )
    return Context(
        entries=(*context.entries[:place], prefixed, *context.entries[place + 1 :]),
        tools=context.tools,
        report=context.report,
        tokens=context.tokens,
    )
