"""Base class of request decoders: entries, media bytes, tool calls without a result."""

import hashlib
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, ClassVar
from urllib.parse import unquote_to_bytes

from history.dialects.json_access import as_float, from_base64, is_too_deep, items, obj, string
from history.dialects.tools import call_id_for
from history.dialects.types import CallOptions, ConversationEntry, DecodedRequest, DialectError, Loss, LossCode
from history.entries import (
    EMPTY,
    PARTS,
    JsonDict,
    JsonObject,
    Media,
    ModelInput,
    ModelOutput,
    OtherPart,
    Part,
    ResultStatus,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    now,
)


class RequestDecoder:
    """Decodes one request into entries. Calls are remembered until they have a result."""

    known: ClassVar[tuple[str, ...]]  # fields of a request that become entries, tools or options

    def __init__(self, *, provider: str, at: datetime | None) -> None:
        self.provider = provider
        self.at = at or now()
        self.entries: list[ConversationEntry] = []
        # The index of the current message, and of the first message of each entry.
        self.place = 0
        self.places: list[int] = []
        self.blobs: dict[str, bytes] = {}
        self.losses: list[Loss] = []
        # Calls without a result by id; names of all calls by id; ids by name.
        self.calls: dict[str, ToolRequest] = {}
        self.names: dict[str, str] = {}
        self.repeats: dict[str, int] = {}
        self.ids_by_name: dict[str, deque[str]] = {}
        # The number of calls of each id since and before the latest results, and these results.
        self.new_calls: Counter[str] = Counter()
        self.answered_calls: Counter[str] = Counter()
        self.results_by_id: dict[str, list[ToolResult]] = {}
        self.more: list[Any] | None = None  # what later messages add to the last entry, which is built once
        self.instructions: list[str] = []  # instructions before the first entry

    def lose(self, code: LossCode, **values: object) -> None:
        self.losses.append(Loss(code=code, seq=len(self.entries) + 1, values=values))

    def check(self, body: object, *, needs: tuple[str, ...]) -> JsonObject:
        """The body, if it is an object with at least one of these fields."""
        if not isinstance(body, Mapping):
            raise DialectError(f"a request is a JSON object, got {type(body).__name__}")
        if not any(name in body for name in needs):
            raise DialectError(f"a request has {' or '.join(needs)}; this one has neither")
        if is_too_deep(body):
            raise DialectError("this request is nested too deeply")
        return body

    def decode(self, body: JsonObject) -> DecodedRequest:
        raise NotImplementedError

    def decoded(
        self, body: JsonObject, options: CallOptions, *, extra: JsonObject = EMPTY, **fields: Any
    ) -> DecodedRequest:
        """Other fields of the body become extra."""
        self.finish_last()
        choice = body.get("tool_choice")
        unread = {"tool_choice": choice} if choice and not (options.tool_choice or options.tool_name) else {}
        return DecodedRequest(
            entries=tuple(self.entries),
            blobs=self.blobs,
            extra={**extra_of(body, *self.known), **unread, **extra},
            losses=tuple(self.losses),
            places=tuple(self.places),
            model=options.model,
            options=options,
            **fields,
        )

    def messages_in(self, values: object) -> Iterator[JsonObject]:
        for self.place, message in enumerate(items(values)):
            if isinstance(message, Mapping):
                yield message

    def add(self, entry: ConversationEntry, *, place: int | None = None) -> None:
        self.finish_last()
        self.entries.append(entry)
        self.places.append(self.place if place is None else place)

    def extend_last(self, more: Sequence[Any]) -> None:
        self.more = self.more or []
        self.more += more

    def finish_last(self) -> None:
        more, self.more = self.more, None
        match self.entries[-1] if more is not None else None:
            case ToolResults() as last:
                self.entries[-1] = replace(last, results=(*last.results, *(more or ())))
            case ModelOutput() as last:
                self.entries[-1] = replace(last, parts=tuple(_join_texts([*last.parts, *(more or ())])))

    def add_input(self, parts: list[Part], metadata: JsonObject = EMPTY, *, channel: str = "relay") -> None:
        if parts:
            self.add(ModelInput(at=self.at, channel=channel, parts=tuple(parts), metadata=metadata))

    def add_answer(self, parts: list[Part], *, place: int | None = None) -> None:
        if parts:
            self.add(ModelOutput(at=self.at, parts=tuple(parts), provider=self.provider), place=place)

    def add_results(self, results: list[ToolResult]) -> None:
        """Add results. They join results directly before them; repeated results are left out."""
        latest = self.entries[-1] if self.entries else None
        if results and not isinstance(latest, ToolResults):
            self.answered_calls, self.new_calls = self.new_calls, Counter()
            self.results_by_id = {}
        results = [result for result in results if not self.is_repeated(result)]
        if not results:
            return
        if isinstance(latest, ToolResults):
            self.extend_last(results)
        else:
            self.add(ToolResults(at=self.at, results=tuple(results)))

    def is_repeated(self, result: ToolResult) -> bool:
        """Whether the call has this result already. Gemini CLI sends each result twice after `--resume`.

        A provider may use one id for several calls, and each of them has a result.
        """
        if not result.call_id:
            return False
        earlier = self.results_by_id.setdefault(result.call_id, [])
        is_answered = len(earlier) >= max(1, self.answered_calls[result.call_id])
        if is_answered and any((one.status, one.parts) == (result.status, result.parts) for one in earlier):
            return True
        earlier.append(result)
        return False

    def call(self, *, call_id: str, name: str, arguments: str, **extra: object) -> ToolRequest:
        request = ToolRequest(
            call_id=call_id or call_id_for(name, arguments, taken=self.calls, repeats=self.repeats),
            name=name,
            arguments=arguments,
            extra=extra,
        )
        self.calls[request.call_id] = request
        self.new_calls[request.call_id] += 1
        self.names[request.call_id] = name
        self.ids_by_name.setdefault(name, deque()).append(request.call_id)
        return request

    def first_open(self, call_ids: deque[str] | None) -> str:
        """The first of these calls without a result; '' if all have one."""
        while call_ids and call_ids[0] not in self.calls:
            call_ids.popleft()
        return call_ids[0] if call_ids else ""

    def result(
        self, *, call_id: str, name: str, parts: list[Part], status: ResultStatus = "success", **extra: object
    ) -> ToolResult:
        if not call_id:
            call_id = self.first_open(self.ids_by_name.get(name))
        self.calls.pop(call_id, None)
        name = name or self.names.get(call_id, "")
        return ToolResult(call_id=call_id, name=name, status=status, parts=tuple(parts), extra=extra)

    def add_media(self, content: bytes, *, media_type: str, name: str = "", **extra: object) -> Media:
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        return Media(media_type=media_type, sha256=sha256, size=len(content), name=name, extra=extra)

    def media(self, source: str, *, media_type: str, name: str = "", **extra: object) -> Media | None:
        """Media of a URL; a ``data:`` URL becomes bytes. None for an empty or invalid URL."""
        if not source.startswith("data:"):
            return Media(media_type=media_type, url=source, name=name, extra=extra) if source else None
        head, comma, rest = source[5:].partition(",")
        content = from_base64(rest) if head.endswith(";base64") else unquote_to_bytes(rest)
        if not comma or content is None:
            return None
        return self.add_media(content, media_type=head.partition(";")[0] or media_type, name=name, **extra)

    def file(self, data: str, *, media_type: str, name: str) -> Media | None:
        """A file within the request: as a ``data:`` URL or as base64 alone."""
        content = from_base64(data) if data and not data.startswith("data:") else None
        if content is None:
            return self.media(data, media_type=media_type, name=name)
        return self.add_media(content, media_type=media_type, name=name)


def _join_texts(parts: list[Part]) -> list[Part]:
    merged: list[Part] = []
    for part in parts:
        last = merged[-1] if merged else None
        if isinstance(part, Text) and isinstance(last, Text) and not (part.extra or last.extra):
            merged[-1] = Text(text=last.text + part.text)
        else:
            merged.append(part)
    return merged


def extra_of(block: JsonObject, *known: str) -> JsonDict:
    """The fields of a block without these and without names of our own parts."""
    left_out = _OWN.union(known)
    return {name: value for name, value in block.items() if name not in left_out and value is not None}


def read_options(body: JsonObject, **fields: Any) -> CallOptions:
    """The options that most vendors name alike, and these."""
    return CallOptions(
        model=string(body.get("model")),
        temperature=as_float(body.get("temperature")),
        top_p=as_float(body.get("top_p")),
        stream=body.get("stream") is True,
        **fields,
    )


def read_function(function: JsonObject, *schema_fields: str, schema: JsonObject | None = None) -> ToolDefinition:
    """A function with its schema in one of these fields."""
    return ToolDefinition(
        name=string(function.get("name")),
        description=string(function.get("description")),
        parameters=obj(function.get(schema_fields[0])) if schema is None else schema,
        extra=extra_of(function, "name", "description", *schema_fields),
    )


def effort_for(budget: int | None) -> str:
    """The effort closest to a thinking budget in tokens; '' without a budget."""
    return next((word for word, least in _BUDGETS if (budget or 0) >= least), "")


_BUDGETS = (("high", 16_000), ("medium", 4_000), ("low", 1))
# Field names of our own parts: a foreign field with such a name would be read as ours from storage.
_OWN = frozenset(
    {"type", "text", "signature", "provider", "redacted", "call_id", "name", "arguments"}
    | {"media_type", "sha256", "url", "size", "extra", "data"}
)


def other(data: object) -> OtherPart:
    return OtherPart(data=as_other(data))


def as_other(data: object) -> JsonObject:
    """A part of an unknown type, unchanged; wrapped if it has a type of ours."""
    if isinstance(data, Mapping) and string(data.get("type")) not in PARTS:
        return data
    return {"type": "unread", "value": data}
