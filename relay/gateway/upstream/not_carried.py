"""Names of what a translation loses, for the response header and the record."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from history.answers.events import MediaPiece, OtherPiece
from history.dialects import DecodedRequest, LossCode
from history.dialects.json_access import string
from history.entries import thaw
from relay.providers.base import CallNotes

# Fields that say something to a vendor about the caller and nothing about the answer.
OF_NO_MATTER = frozenset(
    {
        *(
            "metadata",
            "user",
            "safety_identifier",
            "prompt_cache_key",
            "store",
            "stream_options",
            "service_tier",
            "serviceTier",
        ),
        *("client_metadata", "include", "labels", "prompt_cache_retention"),
        # Read as an option: whoever cannot write it names it.
        "parallel_tool_calls",
    }
)
# Fields that say nothing as long as they say this: many clients write down what holds anyway.
USUAL: dict[str, Any] = {
    "n": 1,
    "logprobs": False,
    "top_logprobs": 0,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logit_bias": {},
    "modalities": ["text"],
    "truncation": "disabled",
    "background": False,
    "generationConfig.candidateCount": 1,
    "generationConfig.presencePenalty": 0,
    "generationConfig.frequencyPenalty": 0,
    "generationConfig.responseLogprobs": False,
    "generationConfig.responseMimeType": "text/plain",
    "generationConfig.responseModalities": ["TEXT"],
}
# Of these the fields inside are named, one by one.
OF_FIELDS = frozenset({"generationConfig", "toolConfig", "output_config", "text"})
# The losses that are told with what was lost.
SAYS_WHICH = {LossCode.OPTION_NOT_CARRIED: "name", LossCode.TOOL_NOT_CARRIED: "name", LossCode.PART_NOT_CARRIED: "type"}
# What stands before an option that the upstream was told and the caller had not said.
SUPPLIED = "option_supplied"
# Names are the caller's or the vendor's own words, and must not end a header or be taken for two of them.
NOT_IN_A_NAME = re.compile(r"[^\x21-\x2b\x2d-\x7e]")


def losses_of_request(asked: DecodedRequest, notes: CallNotes) -> Iterator[str]:
    """The names of what the request says and the upstream was not told, and of what it was told instead."""
    for loss in (*asked.losses, *notes.losses):
        yield _named(loss.code, str(loss.values.get(SAYS_WHICH.get(loss.code, ""), "")))
    for name in _fields(asked.extra):
        if name not in asked.read:
            yield _named(LossCode.OPTION_NOT_CARRIED, name)
    if any(tool.extra.get("strict") is True for tool in asked.tools):
        yield _named(LossCode.OPTION_NOT_CARRIED, "strict")
    for name, value in notes.supplied.items():
        yield f"{SUPPLIED}:{name}={value}"


def _fields(extra: Mapping[str, Any]) -> Iterator[str]:
    for name, value in extra.items():
        if name in OF_FIELDS and isinstance(value, Mapping):
            yield from (full for inner in value if not _is_usual(full := f"{name}.{inner}", value[inner]))
        elif name not in OF_NO_MATTER and not _is_usual(name, value):
            yield name


def _is_usual(name: str, value: Any) -> bool:
    return name in USUAL and bool(thaw(value) == USUAL[name])


def _named(code: LossCode, which: str = "") -> str:
    return f"{code.value}:{NOT_IN_A_NAME.sub('_', which)}" if which else code.value


def loss_of_reply(piece: MediaPiece | OtherPiece) -> str:
    """What the upstream says and the caller's language has no place for."""
    return _named(LossCode.PART_NOT_CARRIED, _kind(piece))


def _kind(piece: MediaPiece | OtherPiece) -> str:
    if isinstance(piece, MediaPiece):
        return piece.media_type or "media"
    return string(piece.data.get("type")) or next(iter(piece.data), "unknown")
