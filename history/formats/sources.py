"""Input file of an import: lines, items of a list, or one document. Sizes are checked before they fill the memory."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import BinaryIO, Literal

import ijson

from history.dialects.json_access import MAX_DEPTH, obj, parse_json
from history.entries import JsonObject
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation
from history.formats.encodings import Encoding, as_utf_8, detect_encoding
from history.text.lazy import LazyText, error_text, gettext_noop as _

MEGABYTE = 1024 * 1024
MAX_LINE = 64 * MEGABYTE
MAX_CONVERSATION = 256 * MEGABYTE
MAX_VALUES = 2_000_000
MAX_ATTACHMENT = 32 * MEGABYTE
SAMPLE_LINES = 40
SAMPLE_ITEMS = 3
BREAKS_OFF = _("The file is damaged or incomplete. Everything before the damage was read.")
TOO_LONG = LazyText(_("Conversations of more than %(size)s MB are not read."), size=MAX_CONVERSATION // MEGABYTE)

Shape = Literal["lines", "array", "object", "other"]


@dataclass(frozen=True, slots=True)
class Line:
    """`problem` says why there is no value."""

    number: int
    value: object = None
    problem: str = ""

    @property
    def place(self) -> str:
        return LazyText(_("line %(number)s"), number=self.number)


@dataclass(frozen=True, slots=True)
class Sample:
    """The beginning of a file, enough to detect its format."""

    shape: Shape
    items: tuple[JsonObject, ...] = ()

    @property
    def first(self) -> JsonObject:
        return self.items[0] if self.items else {}


Companion = Callable[[str], tuple[str, bytes] | None]


def no_companion(name: str) -> tuple[str, bytes] | None:
    return None


@dataclass(frozen=True)
class Source:
    """`companion` finds an attachment beside this file by the prefix of its name. `notes`: problems of the file."""

    name: str
    open_file: Callable[[], BinaryIO]
    companion: Companion = field(default=no_companion)
    notes: Notes = field(default_factory=Notes)

    @cached_property
    def encoding(self) -> Encoding:
        with closing(self.open_file()) as stream:
            encoding = detect_encoding(stream)
        if encoding.problem:
            self.notes("repaired", encoding.problem)
        return encoding

    def open(self) -> BinaryIO:
        return as_utf_8(self.open_file(), self.encoding)

    @cached_property
    def sample(self) -> Sample:
        with closing(self.open()) as stream:
            first = _first_letter(stream)
        if first == b"[":
            with closing(self.open()) as stream:
                items = [item for item in islice(_items(stream), SAMPLE_ITEMS) if isinstance(item, Mapping)]
            return Sample("array", tuple(items))
        lines = tuple(islice(_objects(self), SAMPLE_LINES))
        if len(lines) > 1 or (lines and len(list(islice(self.lines(as_one=False), 2))) > 1):
            return Sample("lines", lines)
        if first != b"{":
            return Sample("other")
        document = lines[0] if lines else self.document()
        return Sample("object", (document,) if isinstance(document, Mapping) else ())

    def lines(self, *, as_one: bool = True) -> Iterator[Line]:
        """The values of all lines; `as_one`: they are one conversation, which is not longer than one may be."""
        total = 0
        with closing(self.open()) as stream:
            for number, raw in enumerate(raw_lines(stream), 1):
                total += len(raw)
                if as_one and total > MAX_CONVERSATION:
                    raise FormatError(TOO_LONG)
                if raw == b"\0":
                    problem = LazyText(_("a line is longer than %(size)s MB"), size=MAX_LINE // MEGABYTE)
                    yield Line(number, problem=problem)
                elif raw.strip():
                    try:
                        yield Line(number, _value(raw))
                    except FormatError as error:
                        yield Line(number, problem=error_text(error))

    def records(self, notes: Notes) -> Iterator[JsonObject]:
        """The objects of all lines of one conversation; a line that is none is noted and left out."""
        for line in self.lines():
            if line.problem:
                where = LazyText("%(place)s: %(problem)s", place=line.place, problem=line.problem)
                notes("repaired", _("A line could not be read and was left out."), where=where)
            else:
                yield obj(line.value)

    def items(self) -> Iterator[object]:
        """The items of a JSON list, one at a time; of a truncated one, all that can be read."""
        with closing(self.open()) as stream:
            yield from _items(stream, on_break=lambda problem: self.notes("repaired", BREAKS_OFF, where=problem))

    def document(self) -> object:
        """The JSON value of the file; of a truncated one, all that can be read."""
        with closing(self.open()) as stream:
            raw = stream.read(MAX_CONVERSATION + 1)
        if len(raw) > MAX_CONVERSATION:
            raise FormatError(TOO_LONG)
        try:
            return _value(raw)
        except FormatError as error:
            begun = next(_items(BytesIO(raw), level=0), None)
            if not begun:
                raise
            self.notes("repaired", BREAKS_OFF, where=error_text(error))
            return begun


@dataclass(frozen=True, slots=True)
class Reader:
    name: str
    recognises: Callable[[Sample], bool]
    read: Callable[[Source], Iterator[Conversation | UnreadableConversation]]


def raw_lines(stream: BinaryIO) -> Iterator[bytes]:
    """The lines; one that is too long is replaced by a zero byte."""
    while raw := stream.readline(MAX_LINE + 1):
        if len(raw) <= MAX_LINE:
            yield raw
            continue
        while raw and not raw.endswith(b"\n"):
            raw = stream.readline(MEGABYTE)
        yield b"\0"  # not valid JSON, so that it is reported


def check_values(raw: bytes) -> None:
    """A few bytes of JSON are a hundred in memory: what would be too much of it is refused before it is read."""
    if raw.count(b",") + raw.count(b"[") + raw.count(b"{") > MAX_VALUES:
        raise FormatError(_("too many values"))


def _value(raw: bytes) -> object:
    check_values(raw)
    try:
        return parse_json(raw.decode("utf-8", "replace"))
    except ValueError as error:
        raise FormatError(_("not valid JSON (%(error)s)"), error=str(error)) from None


class CountedStream:
    def __init__(self, stream: BinaryIO, on_read: Callable[[int], None]) -> None:
        self.stream, self.on_read, self.close = stream, on_read, stream.close

    def read(self, size: int = -1) -> bytes:
        content = self.stream.read(size)
        self.on_read(len(content))
        return content

    def readline(self, size: int = -1) -> bytes:
        line = self.stream.readline(size)
        self.on_read(len(line))
        return line


def _items(
    stream: BinaryIO, *, level: int = 1, on_break: Callable[[str], None] = lambda problem: None
) -> Iterator[object]:
    """Values at a depth of `level`: the items of a list (1), or the value itself (0); the last may be incomplete."""
    builder, depth, values, size = ijson.ObjectBuilder(), 0, 0, 0

    def count(read: int) -> None:
        nonlocal size
        size += read
        if size > MAX_CONVERSATION:
            raise FormatError(TOO_LONG)

    try:
        for event, value in ijson.basic_parse(CountedStream(stream, count), use_float=True, buf_size=65_536):
            opens, closes = event.startswith("start_"), event.startswith("end_")
            depth += opens - closes
            if level and (depth == 0 or (depth == 1 and opens)):
                continue  # the list itself
            values += 1
            if depth > MAX_DEPTH or values > MAX_VALUES:
                raise FormatError(_("An item is nested too deeply or has too many values."))
            builder.event(event, value)
            if depth == level:
                yield builder.value
                builder, values, size = ijson.ObjectBuilder(), 0, 0
    except ijson.JSONError as error:
        text = error.args[0] if error.args else ""
        text = text.decode("utf-8", "replace") if isinstance(text, bytes) else str(text)
        on_break(next(iter(text.strip().splitlines()), "")[:100] or "no JSON")
        if begun := getattr(builder, "value", None):
            yield begun


def _first_letter(stream: BinaryIO) -> bytes:
    for _block in range(64):
        if letters := stream.read(1024).lstrip():
            return letters[:1]
    return b""


def _objects(source: Source) -> Iterator[JsonObject]:
    """The lines that are objects, none if the first few are not: then one object is written over many lines."""
    wrong = 0
    for line in source.lines(as_one=False):
        if isinstance(line.value, Mapping):
            yield line.value
        else:
            wrong += 1
            if wrong >= SAMPLE_LINES:
                return
