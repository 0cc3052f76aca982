"""Which call stands at which address: the language it is in, and whether it is a conversation, a count or else.

The addresses are the vendors' own. What is not in this table is not carried: files, batches and stored answers of
everybody lie behind one account upstream, so whoever wants such a path names it in the file of PARLEY_PROVIDERS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote, unquote

from relay.gateway.journal.records import Kind

ANTHROPIC, CHAT, RESPONSES, GEMINI = "anthropic-messages", "openai-chat", "openai-responses", "gemini-generate"

POSTED: dict[str, tuple[str, Kind]] = {
    "/v1/messages": (ANTHROPIC, "chat"),
    "/v1/messages/count_tokens": (ANTHROPIC, "count"),
    "/v1/chat/completions": (CHAT, "chat"),
    "/v1/responses": (RESPONSES, "chat"),
    "/v1/responses/input_tokens": (RESPONSES, "count"),
    **dict.fromkeys(
        (
            *("/v1/embeddings", "/v1/moderations"),
            *("/v1/audio/speech", "/v1/audio/transcriptions", "/v1/audio/translations"),
            *("/v1/images/generations", "/v1/images/edits", "/v1/images/variations"),
        ),
        (CHAT, "other"),
    ),
}
VERBS: dict[str, Kind] = {
    "generateContent": "chat",
    "streamGenerateContent": "chat",
    "countTokens": "count",
    "embedContent": "other",
    "batchEmbedContents": "other",
}
# A model's name may have a colon of its own, as in qwen3:8b; the verb follows the last one.
_OF_GEMINI = re.compile(r"/v1(?:beta)?/models/(?P<model>[^?#\x00-\x1f\x7f]+):(?P<verb>\w+)")
_OF_OPENAI = "/v1"
_ANTHROPICS = "/v1/messages"
_CLIMBING = re.compile(r"[/\\]\.{1,2}(?:[/\\]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`model` and `verb` are Gemini's, who writes them into the path. `path` is as it is written on the wire."""

    dialect: str
    kind: Kind
    path: str
    model: str = ""
    verb: str = ""

    def below(self, dialect_of_base: str) -> str:
        """The path as it follows a base URL: OpenAI's has the version in it, the others' have not."""
        if dialect_of_base.startswith("openai"):
            return self.path.removeprefix(_OF_OPENAI)
        return self.path

    def with_model(self, model: str) -> Address:
        if not self.model:
            return self
        path = f"{self.path.partition('/models/')[0]}/models/{quote(model, safe='')}:{self.verb}"
        return Address(dialect=self.dialect, kind=self.kind, path=path, model=model, verb=self.verb)


_KNOWN = {path: Address(dialect=dialect, kind=kind, path=path) for path, (dialect, kind) in POSTED.items()}


def find(method: str, path: str, raw: bytes = b"") -> Address | None:
    """`path` is decoded, to be compared; `raw` is the same as the caller wrote it, to be sent on."""
    if method != "POST":
        return None
    if known := _KNOWN.get(path):
        return known
    found = _OF_GEMINI.fullmatch(path)
    kind = VERBS.get(found["verb"]) if found else None
    if found is None or kind is None or climbs(path):
        return None
    return Address(dialect=GEMINI, kind=kind, path=written(path, raw), model=found["model"], verb=found["verb"])


def climbs(path: str) -> bool:
    """Whether whoever tidies it up, or decodes it once more, would see another address than we have looked at."""
    return bool(_CLIMBING.search(path) or _CLIMBING.search(unquote(path)))


def written(path: str, raw: bytes) -> str:
    """As the caller wrote it; what may not stand in an address is escaped."""
    return quote(raw.partition(b"?")[0] or path.encode("utf-8", "surrogatepass"), safe="/%:@!$&'()*+,;=~")


def spoken_by(path: str, headers: Mapping[str, str]) -> str:
    """The language of a caller at an address that says nothing of it: an error must be in a form that it reads."""
    if found := POSTED.get(path):
        return found[0]
    if "anthropic-version" in headers or path.startswith(_ANTHROPICS):
        return ANTHROPIC
    if path.startswith("/v1beta") or "x-goog-api-key" in headers or _has_verb(path):
        return GEMINI
    return CHAT


def _has_verb(path: str) -> bool:
    """What follows the last colon may also belong to the model's name."""
    found = _OF_GEMINI.fullmatch(path)
    return found is not None and found["verb"] in VERBS
