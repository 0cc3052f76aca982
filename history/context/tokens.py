"""Token estimates without a tokenizer: by script, with a calibration factor per model.

For all tokenizers Latin text costs by the word, Chinese by the character, and code by its punctuation. So each
character gets a class by the first byte of its UTF-8 form, which is fast. See docs/internals/tokens.md.
"""

import json
import math
from collections.abc import Iterable, Sequence

from history.context.values import ContextEntry
from history.entries import JsonObject, Media, Part, Reasoning, Text, ToolDefinition, ToolRequest, thaw

# Tokens of a message, a call and a tool besides their texts.
MESSAGE_OVERHEAD = 4
CALL_OVERHEAD = 8
TOOL_OVERHEAD = 12

# Media by type: tokens for unknown size, bytes per token, upper limit.
MEDIA_COSTS: dict[str, tuple[int, int, int]] = {
    "image": (1_200, 400, 3_000),
    "audio": (1_000, 500, 50_000),
    "video": (6_000, 1_000, 300_000),
    "application": (3_000, 60, 100_000),
    "text": (1_000, 4, 1_000_000),
}
UNKNOWN_MEDIA = (1_000, 400, 3_000)

# A character's class, by the first byte of its UTF-8 form; continuation bytes are deleted.
LOWER, UPPER, DIGIT, SPACE, LINE, MARK = b"aA0 \n."
ACCENTED, GREEK, CYRILLIC, SEMITIC, INDIC, KANA, HAN, HANGUL, SYMBOL, EMOJI = b"lgCSIKHG*E"


# The first and last byte of each range of a class.
_RANGES = {
    LOWER: b"az", UPPER: b"AZ", DIGIT: b"09", SPACE: b"  \t\t", LINE: b"\n\n\r\r",
    ACCENTED: b"\xc3\xcb", GREEK: b"\xce\xcf", CYRILLIC: b"\xd0\xd5", SEMITIC: b"\xd6\xdf", INDIC: b"\xe0\xe1",
    SYMBOL: b"\xc2\xc2\xcc\xcd\xe2\xe2\xee\xef", KANA: b"\xe3\xe3", HAN: b"\xe4\xe9", HANGUL: b"\xea\xed",
    EMOJI: b"\xf0\xff",
}  # fmt: skip
_KIND_OF_BYTE = {
    byte: kind
    for kind, edges in _RANGES.items()
    for first, last in zip(edges[::2], edges[1::2], strict=True)
    for byte in range(first, last + 1)
}
CLASSES = bytes(_KIND_OF_BYTE.get(byte, MARK) for byte in range(256))
CONTINUATION = bytes(range(0x80, 0xC0))

# Tokens per word, letter, …: the mean of four vendors' tokenizers (docs/internals/tokens.md).
PER_WORD, PER_LETTER = 0.68, 0.092
PER_NUMBER, PER_DIGIT = 1.1, 0.32
PER_MARK, PER_MARKS = 0.02, 0.7
PER_BLANK, PER_LINE = 0.02, 1.2
# Accented letters cost this on top of being letters.
PER_CHARACTER = {
    ACCENTED: 1.0, GREEK: 0.9, CYRILLIC: 0.42, SEMITIC: 0.65, INDIC: 0.85,
    KANA: 0.75, HAN: 0.82, HANGUL: 0.88, SYMBOL: 0.65, EMOJI: 3.2,
}  # fmt: skip

LETTERS = bytes((LOWER, UPPER, ACCENTED))


def _only(kinds: bytes) -> bytes:
    """A table that turns all other classes into spaces, so that splitting gives the runs of these."""
    return bytes(kind if kind in kinds else SPACE for kind in range(256))


ONLY_LETTERS, ONLY_DIGITS, ONLY_MARKS = _only(LETTERS), _only(bytes((DIGIT,))), _only(bytes((MARK,)))


def estimate_text(text: str) -> int:
    """An estimate for a vendor without calibration."""
    if not text:
        return 0
    classes = text.encode("utf-8", "surrogatepass").translate(CLASSES, CONTINUATION)
    count = classes.count
    # A capital after a small letter begins a word too: that is how identifiers are written.
    words = len(classes.translate(ONLY_LETTERS).split()) + count(bytes((LOWER, UPPER)))
    numbers = len(classes.translate(ONLY_DIGITS).split())
    marks = len(classes.translate(ONLY_MARKS).split())
    letters = sum(map(count, LETTERS))
    tokens = PER_WORD * words + PER_LETTER * letters + PER_NUMBER * numbers + PER_DIGIT * count(DIGIT)
    tokens += PER_MARKS * marks + PER_MARK * count(MARK) + PER_BLANK * count(b"  ") + PER_LINE * count(LINE)
    if not text.isascii():
        tokens += sum(weight * count(kind) for kind, weight in PER_CHARACTER.items())
    return max(1, round(tokens))


def estimate_entry(entry: ContextEntry) -> int:
    results = sum(CALL_OVERHEAD + estimate_text(r.error) + estimate_parts(r.parts) for r in entry.results)
    return MESSAGE_OVERHEAD + estimate_parts(entry.parts) + results + estimate_text(entry.live_screen or "")


def estimate_parts(parts: Iterable[Part]) -> int:
    return sum(map(_estimate_part, parts))


def _estimate_part(part: Part) -> int:
    if isinstance(part, Text):
        return estimate_text(part.text)
    if isinstance(part, ToolRequest):
        return CALL_OVERHEAD + estimate_text(part.name) + estimate_text(part.arguments)
    if isinstance(part, Reasoning):
        return estimate_text(part.text) + estimate_text(part.redacted)
    if isinstance(part, Media):
        return estimate_media(part)
    return estimate_text(_compact(part.data))


def estimate_media(media: Media) -> int:
    """By type and size, within limits; vendors count pixels and seconds."""
    unknown, bytes_per_token, most = MEDIA_COSTS.get(media.media_type.partition("/")[0], UNKNOWN_MEDIA)
    if not media.size:
        return unknown
    return max(MESSAGE_OVERHEAD, min(most, math.ceil(media.size / bytes_per_token)))


def _compact(value: JsonObject) -> str:
    return json.dumps(thaw(value), ensure_ascii=False, separators=(",", ":"))


def estimate_tools(tools: Sequence[ToolDefinition]) -> int:
    texts = (text for tool in tools for text in (tool.name, tool.description, _compact(tool.parameters)))
    return TOOL_OVERHEAD * len(tools) + sum(map(estimate_text, texts))


def estimate_context(entries: Iterable[ContextEntry], *, system: str = "", tools: Sequence[ToolDefinition] = ()) -> int:
    instruction = MESSAGE_OVERHEAD + estimate_text(system) if system else 0
    return instruction + estimate_tools(tools) + sum(map(estimate_entry, entries))


# Calibration: counts of a model's vendor compared with our estimates.

LEAST_FACTOR, MOST_FACTOR = 0.25, 4.0
# From this many samples on, a new count moves the factor by a fixed share: vendors change their tokenizers.
SMOOTHING = 20


def calibrate(estimate: int, *, factor: float) -> int:
    return math.ceil(estimate * factor)


def updated_factor(previous: float, *, samples: int, estimated: int, actual: int) -> float:
    """The factor after one more count. The first counts move it fast, later ones slowly, and an absurd one not far."""
    if estimated <= 0 or actual <= 0:
        return previous
    ratio = min(MOST_FACTOR, max(LEAST_FACTOR, actual / estimated))
    share = 1 / (min(samples, SMOOTHING) + 1)
    # Ratios are averaged by their logarithms: 2 and 1/2 cancel out.
    return min(MOST_FACTOR, max(LEAST_FACTOR, math.exp((1 - share) * math.log(previous) + share * math.log(ratio))))
