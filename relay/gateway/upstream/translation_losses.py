"""Names of what a translation loses, for the response header and the record."""

import re
from collections.abc import Iterator, Mapping

from history.answers.events import MediaPiece, OtherPiece
from history.dialects import DecodedRequest, LossCode
from history.dialects.json_access import string
from history.entries import JsonObject, thaw
from relay.providers.base import CallNotes

# Fields about the caller that do not change the answer.
IGNORED = frozenset(
    {
        *("metadata", "user", "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "store", "include"),
        *("stream_options", "service_tier", "serviceTier", "client_metadata", "labels"),
        # Decoded as an option: a dialect that cannot encode it reports the loss.
        "parallel_tool_calls",
    }
)
# Many clients send defaults.
DEFAULTS: dict[str, object] = {
    **dict.fromkeys(("n", "generationConfig.candidateCount"), 1),
    **dict.fromkeys(("top_logprobs", "presence_penalty", "frequency_penalty"), 0),
    **dict.fromkeys(("generationConfig.presencePenalty", "generationConfig.frequencyPenalty"), 0),
    **dict.fromkeys(("logprobs", "background", "generationConfig.responseLogprobs"), False),
    "logit_bias": {},
    "modalities": ["text"],
    "truncation": "disabled",
    "generationConfig.responseMimeType": "text/plain",
    "generationConfig.responseModalities": ["TEXT"],
}
NESTED = frozenset({"generationConfig", "toolConfig", "output_config", "text"})  # of these the fields inside are named
# Losses with the name of what was lost.
NAME_KEYS = {LossCode.OPTION_NOT_CARRIED: "name", LossCode.TOOL_NOT_CARRIED: "name", LossCode.PART_NOT_CARRIED: "type"}
SUPPLIED = "option_supplied"  # the prefix of an option that the upstream received and the caller had not sent
# Names come from the caller or the vendor, and must not end a header or look like two names.
NOT_IN_NAMES = re.compile(r"[^\x21-\x2b\x2d-\x7e]")


def losses_of_request(request: DecodedRequest, notes: CallNotes) -> Iterator[str]:
    """The names of what the upstream did not receive of the request, and of what it received in addition."""
    for loss in (*request.losses, *notes.losses):
        yield _name(loss.code, str(loss.values.get(NAME_KEYS.get(loss.code, ""), "")))
    for name in _fields(request.extra):
        if name not in request.read:
            yield _name(LossCode.OPTION_NOT_CARRIED, name)
    if any(tool.extra.get("strict") is True for tool in request.tools):
        yield _name(LossCode.OPTION_NOT_CARRIED, "strict")
    for name, value in notes.supplied.items():
        yield f"{SUPPLIED}:{name}={value}"


def _fields(extra: JsonObject) -> Iterator[str]:
    for name, value in extra.items():
        if name in NESTED and isinstance(value, Mapping):
            yield from (full for inner in value if not _is_default(full := f"{name}.{inner}", value[inner]))
        elif name not in IGNORED and not _is_default(name, value):
            yield name


def _is_default(name: str, value: object) -> bool:
    return name in DEFAULTS and bool(thaw(value) == DEFAULTS[name])


def _name(code: LossCode, which: str = "") -> str:
    return f"{code.value}:{NOT_IN_NAMES.sub('_', which)}" if which else code.value


def loss_of_reply(piece: MediaPiece | OtherPiece) -> str:
    """The name of a part of the reply that the caller's dialect cannot express."""
    if isinstance(piece, MediaPiece):
        kind = piece.media_type or "media"
    else:
        kind = string(piece.data.get("type")) or next(iter(piece.data), "unknown")
    return _name(LossCode.PART_NOT_CARRIED, kind)
