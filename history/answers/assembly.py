"""Assembly of streamed events into one answer entry; partial answers are kept.

It returns the answer so far at any time, and another process can resume from that. Cut-off arguments stay unchanged.
"""

import hashlib
from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any

from history.answers import events
from history.entries.kinds import ModelOutput
from history.entries.values import JsonDict, JsonObject, Media, OtherPart, Part, Reasoning, Text, ToolRequest, Usage

_COUNTS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
_FIRST_ONLY = frozenset({"call_id", "name"})  # the first value counts; some vendors repeat these in every piece
NO_ARGUMENTS = "{}"
MOST_PIECES = 1_000  # pieces are joined at this number: a token of four letters takes 60 bytes as an object


class Assembler:
    """`blobs` has the bytes of media by SHA-256, `further_answers` the others of a reply with several."""

    def __init__(self, *, provider: str = "", model: str = "", agent: str = "") -> None:
        self.provider, self.model, self.agent = provider, model, agent
        self.request_id = ""
        self.usage: Usage | None = None
        self.ended: events.AnswerEnded | None = None
        self.failed: events.AnswerFailed | None = None
        self.unreadable: list[events.UnreadableEvent] = []
        self.blobs: dict[str, bytes] = {}
        self.further_answers: dict[int, Assembler] = {}
        # By name and kind: an odd stream may use one name for two parts.
        self._parts: dict[tuple[str, type[events.Piece]], _PartBuilder] = {}
        self._pending: list[events.TextPiece] = []  # text pieces are many, so they are added in batches

    @classmethod
    def resume(cls, output: ModelOutput, *, names: Iterable[str] = ()) -> "Assembler":
        """Continue a partial answer. With its `part_names`, further pieces extend the same parts."""
        resumed = cls(provider=output.provider, model=output.model, agent=output.agent)
        resumed.request_id, resumed.usage = output.request_id, output.usage
        if output.status == "complete":
            resumed.ended = events.AnswerEnded(reason=events.end_reason(output.end_reason))
        elif output.status == "failed":
            resumed.failed = events.AnswerFailed(message=output.error)
        known_names = dict(enumerate(names))
        for place, part in enumerate(output.parts):
            name = known_names.get(place, f"resumed-{place}")
            resumed._parts[name, type(events.piece_of(part, name))] = _PartBuilder.of(part)
        return resumed

    @property
    def part_names(self) -> tuple[str, ...]:
        """The names of the parts of `output()`, in order."""
        self._add_pending()
        return tuple(name for (name, _), part in self._parts.items() if part.is_there(self.provider))

    def snapshot(self) -> "Assembler":
        """A cheap read-only copy without copies of texts. Any thread may call its `output`."""
        self._add_pending()
        frozen = copy(self)
        frozen._parts = {place: part.snapshot() for place, part in self._parts.items()}
        frozen._pending = []
        return frozen

    @property
    def chars(self) -> int:
        self._add_pending()
        return sum(text.chars for part in self._parts.values() for text in part.texts.values())

    def feed(self, event: events.Event) -> None:
        if isinstance(event, events.TextPiece):
            self._pending.append(event)
            if len(self._pending) >= MOST_PIECES:
                self._add_pending()
            return
        self._add_pending()
        match event:
            case events.AnswerStarted():
                self.model, self.request_id = event.model or self.model, event.request_id or self.request_id
                self.provider = self.provider or event.provider
            case events.UsageReported():
                self.usage = merged_usage(self.usage, event.usage)
            case events.AnswerEnded():
                self.ended = event
            case events.AnswerFailed():
                self.failed = event
            case events.UnreadableEvent():
                self.unreadable.append(event)
            case events.FurtherAnswerEvent():
                if event.answer not in self.further_answers:
                    self.further_answers[event.answer] = Assembler(
                        provider=self.provider, model=self.model, agent=self.agent
                    )
                self.further_answers[event.answer].feed(event.event)
            case _:
                self._add(event)

    def _add_pending(self) -> None:
        pending, self._pending = self._pending, []
        for event in pending:
            self._add(event)

    def feed_all(self, stream: Iterable[events.Event]) -> "Assembler":
        for event in stream:
            self.feed(event)
        return self

    def output(self, **fields: Any) -> ModelOutput:
        self._add_pending()
        built = (part.build(self.provider) for part in self._parts.values())
        return ModelOutput(
            parts=tuple(part for part in built if part is not None),
            provider=self.provider,
            model=self.model,
            agent=self.agent,
            status="failed" if self.failed else "complete" if self.ended else "interrupted",
            end_reason=fields.pop("end_reason", self.ended.reason if self.ended else ""),
            error=self.failed.message if self.failed else "",
            usage=self.usage,
            request_id=self.request_id,
            **fields,
        )

    def _add(self, event: events.Piece) -> None:
        kind = type(event)
        place = (event.part, kind)
        if isinstance(event, events.MediaPiece):
            self._parts[place] = _PartBuilder.of(self._media(event))
        elif isinstance(event, events.OtherPiece):
            self._parts[place] = _PartBuilder.of(OtherPart(data=event.data))
        else:
            builder = self._parts.get(place) or self._parts.setdefault(place, _PartBuilder(_BUILDERS[kind][0]))
            builder.add(event)

    def _media(self, event: events.MediaPiece) -> Media:
        if not event.data:
            return Media(media_type=event.media_type, url=event.url)
        sha256 = hashlib.sha256(event.data).hexdigest()
        self.blobs[sha256] = event.data
        return Media(media_type=event.media_type, sha256=sha256, size=len(event.data))


Builder = Callable[..., Part | None]


class _Pieces:
    """A growing text in linear time and memory. `blocks` are many pieces joined."""

    __slots__ = ("blocks", "chars", "pieces")

    def __init__(self) -> None:
        self.blocks: list[str] = []
        self.pieces: list[str] = []
        self.chars = 0

    def add(self, piece: str) -> None:
        self.pieces.append(piece)
        self.chars += len(piece)
        if len(self.pieces) >= MOST_PIECES:
            self.blocks.append("".join(self.pieces))
            self.pieces = []

    def snapshot(self) -> "_Pieces":
        frozen = _Pieces()
        frozen.blocks, frozen.pieces, frozen.chars = self.blocks[:], self.pieces[:], self.chars
        return frozen

    def text(self) -> str:
        whole = "".join([*self.blocks, *self.pieces])
        self.blocks, self.pieces = [whole], []
        return whole


class _PartBuilder:
    def __init__(self, builder: Builder) -> None:
        self.builder = builder
        self.texts: dict[str, _Pieces] = {}
        self.extra: JsonDict = {}

    @classmethod
    def of(cls, part: Part) -> "_PartBuilder":
        """Continue a part. Only texts, thinking and calls can grow; other parts are whole."""
        if not isinstance(part, Text | Reasoning | ToolRequest):
            return cls(lambda **_: part)
        if isinstance(part, ToolRequest) and part.arguments == NO_ARGUMENTS:
            part = replace(part, arguments="")
        piece = events.piece_of(part, "")
        resumed = cls(_BUILDERS[type(piece)][0])
        resumed.add(piece)
        return resumed

    def add(self, event: events.Piece) -> None:
        for name in _BUILDERS[type(event)][1]:
            value = getattr(event, name)
            if value and not (name in _FIRST_ONLY and name in self.texts):
                self.texts.setdefault(name, _Pieces()).add(value)
        for name, value in getattr(event, "extra", {}).items():
            grows = isinstance(value, list | tuple) and isinstance(self.extra.get(name), list | tuple)
            self.extra[name] = [*self.extra[name], *value] if grows else value

    def build(self, provider: str) -> Part | None:
        texts = {name: pieces.text() for name, pieces in self.texts.items()}
        return self.builder(provider=provider, extra=self.extra, **texts)

    def is_there(self, provider: str) -> bool:
        """Whether `build` returns a part. The beginnings of the texts are enough to decide."""
        beginnings = {name: (pieces.blocks or pieces.pieces)[0] for name, pieces in self.texts.items()}
        return self.builder(provider=provider, extra=self.extra, **beginnings) is not None

    def snapshot(self) -> "_PartBuilder":
        frozen = _PartBuilder(self.builder)
        frozen.texts = {name: pieces.snapshot() for name, pieces in self.texts.items()}
        frozen.extra = dict(self.extra)
        return frozen


def _text(*, provider: str, extra: JsonObject, text: str = "") -> Part | None:
    return Text(text=text, extra=extra) if text else None


def _reasoning(*, provider: str, extra: JsonObject, **texts: str) -> Part | None:
    return Reasoning(provider=provider, extra=extra, **texts) if texts else None


def _tool_request(*, name: str = "", arguments: str = "", call_id: str = "", **fields: object) -> Part | None:
    """Some vendors send calls without a name and arguments, which cannot run."""
    return ToolRequest(call_id=call_id, name=name, arguments=arguments or NO_ARGUMENTS) if name or arguments else None


# How a part is built from pieces, and the fields of the pieces that grow.
_BUILDERS: dict[type, tuple[Builder, tuple[str, ...]]] = {
    events.TextPiece: (_text, ("text",)),
    events.ReasoningPiece: (_reasoning, ("text", "signature", "redacted")),
    events.ToolCallPiece: (_tool_request, ("call_id", "name", "arguments")),
}


def merged_usage(before: Usage | None, after: Usage) -> Usage:
    """Vendors report input first and output last: a later zero does not erase an earlier count."""
    if before is None:
        return after
    counts = {name: getattr(after, name) or getattr(before, name) for name in _COUNTS}
    return replace(after, raw={**before.raw, **after.raw}, **counts)
