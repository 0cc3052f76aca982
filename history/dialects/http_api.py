"""Vendors' HTTP APIs: paths, auth header, model list, usage and references.

Each dialect has one `HttpApi` object, its `HTTP_API`. It answers what the gateway and the providers must know of the
vendor besides the conversation itself, so that neither names one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from history.answers.events import ErrorKind
from history.dialects.references import IssuedIds, Reference
from history.dialects.types import Switches
from history.entries import EMPTY, Usage

CallKind = Literal["chat", "count", "other"]
KeyHeader = Literal["bearer", "api-key", "x-api-key", "x-goog-api-key"]

_NOT_FOR_CHAT = re.compile(
    r"embed|rerank|moderation|whisper|transcri|(^|[-_])tts|speech|realtime|audio|dall-e|image|video|veo|sora|imagen"
    r"|banana|-live|guard|davinci|babbage|-instruct$|computer-use|robotics",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One model in a list of models. `window` 0 means unknown; `owner` is the provider, if there is one."""

    name: str
    label: str = ""
    window: int = 0
    takes_images: bool = True
    owner: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelPath:
    """A path that names the model and, behind a colon, what is asked of it."""

    model: str
    verb: str
    kind: CallKind


class HttpApi:
    """The defaults are those of most vendors; a dialect overrides what differs."""

    # Addresses. `paths` are POST requests that the relay carries without being told to by the operator.
    paths: ClassVar[Mapping[str, CallKind]] = EMPTY
    # The part of the paths that base URLs of this vendor's SDKs already end with.
    version_in_base_url: ClassVar[str] = ""

    # Headers.
    key_header: ClassVar[KeyHeader] = "bearer"
    # Sent unless the operator or the relayed client sends its own.
    default_headers: ClassVar[Mapping[str, str]] = EMPTY

    # Requests. `request_fields` are fields in which a request refers to something at the vendor, as msgspec types.
    conversation_field: ClassVar[str] = "messages"
    request_fields: ClassVar[Mapping[str, Any]] = EMPTY

    # Replies.
    reply_id_prefix: ClassVar[str] = ""
    # Whether the vendor stores answers, and a request can continue one by its id.
    stores_answers: ClassVar[bool] = False
    # Whether clients of this vendor skip comment lines of an event stream.
    allows_comments: ClassVar[bool] = True
    # The kind of a 404 that is not about a model.
    not_found_kind: ClassVar[ErrorKind] = "not_found"

    # Usage. `usage_field` is the JSON key, in quotes, whose object has the token counts.
    usage_field: ClassVar[bytes] = b'"usage"'
    # Whether the counts of a stream are at its beginning as well as at its end.
    splits_usage: ClassVar[bool] = False
    # Matches the final event of a complete stream. Within a text the quotes would be escaped.
    final_event: ClassVar[re.Pattern[bytes]]

    # The list of models.
    models_path: ClassVar[str] = "/models"
    # Dialects that servers of this one often accept as well, and the path that shows it.
    probe_paths: ClassVar[Mapping[str, str]] = EMPTY

    # Addresses

    def match_path(self, path: str) -> ModelPath | None:
        """For vendors whose paths name the model."""
        return None

    def path_for_model(self, path: str, *, model: str, verb: str) -> str:
        """The same path with another model."""
        return path

    def is_caller(self, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request to an unknown path comes from a client of this vendor."""
        return False

    # Requests

    def request_headers(self, switches: Switches) -> Mapping[str, str]:
        """Headers that a request needs besides the key."""
        return self.default_headers

    def wants_stream(self, request: Mapping[str, Any], verb: str) -> bool:
        return request.get("stream") is True

    def wants_stream_usage(self, request: Mapping[str, Any]) -> bool:
        """Whether the client expects token counts in its stream."""
        return True

    def wants_array(self, query: str) -> bool:
        """Whether the client expects its stream as one JSON array instead of server-sent events."""
        return False

    # References

    def references_in(self, request: Mapping[str, Any]) -> Iterable[Reference]:
        """References that only a whole item of the parsed `request_fields` shows."""
        return ()

    def lenient_references(self, field: str, value: Any) -> Iterator[Reference]:
        """The same in one field of a body that only a lenient parser accepts."""
        return iter(())

    def count_types(self, request: Mapping[str, Any]) -> int:
        """How many `CountedText` the parsed request still has: a key that occurs twice has replaced one."""
        return 0

    def issued_ids(self, request: Mapping[str, Any]) -> IssuedIds | None:
        """Where the reply names what the vendor stores for later requests; None where it stores nothing."""
        return None

    def listed_ids(self, path: str) -> IssuedIds | None:
        """The same for a path that the operator has listed."""
        return None

    # Usage

    def read_usage(self, counts: Mapping[str, Any]) -> Usage:
        raise NotImplementedError

    def read_other_usage(self, counts: Mapping[str, Any]) -> Usage:
        """Of a call that is not a conversation: embeddings, images, audio."""
        return self.read_usage(counts)

    def has_final_event(self, tail: bytes, text: bytes) -> bool:
        """Whether a stream surely ended as it should. `text` is all of it as far as it was kept."""
        return self.final_event.search(tail) is not None and b'"error"' not in tail

    # Replies that Parley writes itself

    def encode_token_count(self, tokens: int) -> dict[str, Any]:
        return {"input_tokens": tokens}

    def encode_model(self, model: ListedModel) -> dict[str, Any]:
        raise NotImplementedError

    def encode_models(self, models: Sequence[ListedModel]) -> dict[str, Any]:
        raise NotImplementedError

    # The list of models

    def read_models(self, listed: Mapping[str, Any]) -> Iterator[ListedModel]:
        """Models that can chat."""
        raise NotImplementedError


def can_chat(name: str) -> bool:
    """Judged by the name, because most lists do not say what a model is for."""
    return not _NOT_FOR_CHAT.search(name)
