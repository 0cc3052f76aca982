"""Base class of request decoders: entries, media bytes, open tool calls."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any
from urllib.parse import unquote_to_bytes

from history.context import SYSTEM_CHANNEL
from history.dialects.encoder import INVALID_JSON
from history.dialects.json_access import compact, is_too_deep, items, string
from history.dialects.types import CallOptions, DecodedRequest, DialectError, Loss, LossCode, Said
from history.entries import (
    PARTS,
    Media,
    ModelInput,
    ModelOutput,
    OtherPart,
    Part,
    ResultStatus,
    ToolRequest,
    ToolResult,
    ToolResults,
    now,
)


def check_request(body: Any, *, needs: tuple[str, ...]) -> Mapping[str, Any]:
    """The body, if it is a request at all: an object with at least one of these fields."""
    if not isinstance(body, Mapping):
        raise DialectError(f"a request is a JSON object, got {type(body).__name__}")
    if not any(name in body for name in needs):
        raise DialectError(f"a request has {' or '.join(needs)}; this one has neither")
    if is_too_deep(body):
        raise DialectError("this request is nested too deeply to be read")
    return body


def arguments_text(arguments: Any) -> str:
    """Arguments as JSON text. What was wrapped because it was cut off is taken out again."""
    if isinstance(arguments, str):
        return arguments or "{}"
    if (
        isinstance(arguments, Mapping)
        and list(arguments) == [INVALID_JSON]
        and isinstance(arguments[INVALID_JSON], str)
    ):
        return str(arguments[INVALID_JSON])
    return compact(arguments) if arguments else "{}"


def call_id_for(
    name: str, arguments: str, *, taken: Mapping[str, Any] | set[str], repeats: dict[str, int] | None = None
) -> str:
    """An id for a call that came without one: the same for the same call, in a reply and in every later request.

    `repeats` remembers how often a call was repeated, so that the thousandth equal call is not compared with them all.
    """
    mark = hashlib.sha256(f"{name}\0{arguments}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
    if f"call_{mark}" not in taken:
        return f"call_{mark}"
    known = {} if repeats is None else repeats
    repeated = known.get(mark, 1) + 1
    while f"call_{mark}_{repeated}" in taken:
        repeated += 1
    known[mark] = repeated
    return f"call_{mark}_{repeated}"


class RequestDecoder:
    """One request as it is read. Parts go to whoever speaks; calls are remembered until they are answered."""

    def __init__(self, *, provider: str, at: datetime | None) -> None:
        self.provider = provider
        self.at = at or now()
        self.entries: list[Said] = []
        # Which message of the request is being read, and which one each entry begins with.
        self.place = 0
        self.places: list[int] = []
        self.blobs: dict[str, bytes] = {}
        self.losses: list[Loss] = []
        # The calls of the latest answer, by id, and those of them that nobody has answered yet.
        self.calls: dict[str, ToolRequest] = {}
        self.names: dict[str, str] = {}
        self.repeats: dict[str, int] = {}
        self.asked_by_name: dict[str, deque[str]] = {}
        # How often each id was called since the latest results, and before them; and those results.
        self.new_calls: Counter[str] = Counter()
        self.answered_calls: Counter[str] = Counter()
        self.results_by_id: dict[str, list[ToolResult]] = {}
        # The last entry while it grows: many messages may make one entry, which is built once.
        self.growing: list[Any] = []
        self.build: Callable[[], Said] | None = None

    def lose(self, code: LossCode, **values: Any) -> None:
        self.losses.append(Loss(code=code, seq=len(self.entries) + 1, values=values))

    def decoded(self, body: Mapping[str, Any], *, known: tuple[str, ...], **fields: Any) -> DecodedRequest:
        """All that was read; what the body says besides the known fields is kept as it is."""
        self.settle()
        extra = extra_of(body, *known) | fields.pop("extra", {})
        return DecodedRequest(
            entries=tuple(self.entries),
            blobs=self.blobs,
            extra=extra,
            losses=tuple(self.losses),
            places=tuple(self.places),
            **fields,
        )

    def each(self, given: Any) -> Iterator[Mapping[str, Any]]:
        """The messages of a request, one by one; what is no object is passed over."""
        for self.place, message in enumerate(items(given)):
            if isinstance(message, Mapping):
                yield message

    def add(self, entry: Said, *, place: int | None = None) -> None:
        self.settle()
        self.entries.append(entry)
        self.places.append(self.place if place is None else place)

    def grow(self, begun: Sequence[Any], more: Sequence[Any], build: Callable[[], Said]) -> None:
        """Add to the last entry: `begun` is what it holds, `build` makes it from `growing` in the end."""
        if self.build is None:
            self.growing, self.build = list(begun), build
        self.growing += more

    def settle(self) -> None:
        if self.build is not None:
            self.entries[-1] = self.build()
            self.growing, self.build = [], None

    # Who speaks.

    def hear(self, parts: list[Part], **metadata: Any) -> None:
        if parts:
            self.add(ModelInput(at=self.at, channel="relay", parts=tuple(parts), metadata=metadata))

    def instruct(self, parts: list[Part], **metadata: Any) -> None:
        """An instruction in the middle of a conversation."""
        if parts:
            self.add(ModelInput(at=self.at, channel=SYSTEM_CHANNEL, parts=tuple(parts), metadata=metadata))

    def answer(self, parts: list[Part], *, place: int | None = None) -> None:
        if parts:
            self.add(ModelOutput(at=self.at, parts=tuple(parts), provider=self.provider), place=place)

    def find(self, results: list[ToolResult]) -> None:
        """Results directly after other results answer the same calls. Repeated results are left out."""
        latest = self.entries[-1] if self.entries else None
        if results and not isinstance(latest, ToolResults):
            self.answered_calls, self.new_calls = self.new_calls, Counter()
            self.results_by_id = {}
        results = [result for result in results if not self.is_repeated(result)]
        if not results:
            return
        if isinstance(latest, ToolResults):
            self.grow(latest.results, results, lambda: ToolResults(at=self.at, results=tuple(self.growing)))
        else:
            self.add(ToolResults(at=self.at, results=tuple(results)))

    def is_repeated(self, result: ToolResult) -> bool:
        """Whether the same result was given for this call before. Gemini CLI sends each result twice after `--resume`.

        A provider may give one id to several calls: each of them has a result.
        """
        if not result.call_id:
            return False
        known = self.results_by_id.setdefault(result.call_id, [])
        is_answered = len(known) >= max(1, self.answered_calls[result.call_id])
        if is_answered and any((one.status, one.parts) == (result.status, result.parts) for one in known):
            return True
        known.append(result)
        return False

    # Calls and results.

    def call(self, *, call_id: str, name: str, arguments: str, **extra: Any) -> ToolRequest:
        request = ToolRequest(
            call_id=call_id or call_id_for(name, arguments, taken=self.calls, repeats=self.repeats),
            name=name,
            arguments=arguments,
            extra=extra,
        )
        self.calls[request.call_id] = request
        self.new_calls[request.call_id] += 1
        self.names[request.call_id] = name
        self.asked_by_name.setdefault(name, deque()).append(request.call_id)
        return request

    def first_open(self, waiting: deque[str] | None) -> str:
        """The first of these calls without a result; '' if all have one."""
        while waiting and waiting[0] not in self.calls:
            waiting.popleft()
        return waiting[0] if waiting else ""

    def result(
        self, *, call_id: str, name: str, parts: list[Part], status: ResultStatus = "success", **extra: Any
    ) -> ToolResult:
        if not call_id:
            call_id = self.first_open(self.asked_by_name.get(name))
        self.calls.pop(call_id, None)
        name = name or self.names.get(call_id, "")
        return ToolResult(call_id=call_id, name=name, status=status, parts=tuple(parts), extra=extra)

    # Media.

    def keep(self, content: bytes, *, media_type: str, name: str = "", **extra: Any) -> Media:
        sha256 = hashlib.sha256(content).hexdigest()
        self.blobs[sha256] = content
        return Media(media_type=media_type, sha256=sha256, size=len(content), name=name, extra=extra)

    def media(self, source: str, *, media_type: str, name: str = "", **extra: Any) -> Media | None:
        """Media behind a URL; the bytes are taken out of a ``data:`` URL. None if there is nothing in it."""
        if not source.startswith("data:"):
            return Media(media_type=media_type, url=source, name=name, extra=extra) if source else None
        head, comma, rest = source[5:].partition(",")
        content = from_base64(rest) if head.endswith(";base64") else unquote_to_bytes(rest)
        if not comma or content is None:
            return None
        return self.keep(content, media_type=head.partition(";")[0] or media_type, name=name, **extra)

    def file(self, data: str, *, media_type: str, name: str) -> Media | None:
        """A file that came with the request: as a ``data:`` URL, or its bytes alone."""
        content = from_base64(data) if data and not data.startswith("data:") else None
        if content is None:
            return self.media(data, media_type=media_type, name=name)
        return self.keep(content, media_type=media_type, name=name)


def from_base64(text: Any) -> bytes | None:
    """The bytes, of the usual or the URL-safe alphabet; None if the text is no base64."""
    if not isinstance(text, str):
        return None
    try:
        return base64.b64decode(text.replace("-", "+").replace("_", "/") + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError):
        return None


def extra_of(block: Mapping[str, Any], *known: str) -> dict[str, Any]:
    """What a block says besides the fields that we read."""
    return {
        name: value for name, value in block.items() if name not in known and name not in _OWN and value is not None
    }


def unread_choice(body: Mapping[str, Any], options: CallOptions) -> dict[str, Any]:
    """What a request says about the choice of a tool, if that is something that we have no word for."""
    choice = body.get("tool_choice")
    return {"tool_choice": choice} if choice and not (options.tool_choice or options.tool_name) else {}


def effort_for(budget: int | None) -> str:
    """How much to think, in words: what lies next to a number of tokens. Nothing, where there is none."""
    return next((word for word, least in _BUDGETS if (budget or 0) >= least), "")


_BUDGETS = (("high", 16_000), ("medium", 4_000), ("low", 1))
# Names that our own parts use: a foreign field of that name would be read as ours when it comes back from storage.
_OWN = frozenset(
    {"type", "text", "signature", "provider", "redacted", "call_id", "name", "arguments"}
    | {"media_type", "sha256", "url", "size", "extra", "data"}
)


def other(data: Any) -> OtherPart:
    return OtherPart(data=as_other(data))


def as_other(data: Any) -> Mapping[str, Any]:
    """A part of a type that we do not know, as it came; under another name where its type means something to us."""
    if not isinstance(data, Mapping):
        return {"type": "unread", "value": data}
    return {"type": "unread", "value": data} if string(data.get("type")) in PARTS else data
