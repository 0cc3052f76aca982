"""Facts of a vendor's HTTP API: paths, auth header, model list, usage, references; the gateway names no vendor."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

from history.answers.events import ErrorKind
from history.dialects.references import IssuedIds, Reference
from history.dialects.types import Switches
from history.entries import EMPTY, JsonDict, JsonObject, Usage

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


class ModelPath(NamedTuple):
    """A path with the model and, after a colon, the method."""

    model: str
    verb: str
    kind: CallKind


class HttpApi:
    """The defaults are those of most vendors."""

    vendor: ClassVar[str]  # signed reasoning goes back to this vendor only
    paths: ClassVar[Mapping[str, CallKind]] = EMPTY  # POST requests that the relay forwards without configuration
    # The part of the paths that base URLs of this vendor's SDKs already end with.
    version_in_base_url: ClassVar[str] = ""

    key_header: ClassVar[KeyHeader] = "bearer"
    default_headers: ClassVar[Mapping[str, str]] = EMPTY  # sent unless the operator or the relayed client sends its own

    # `request_fields` are the fields with references to stored objects of the vendor, as msgspec types.
    conversation_field: ClassVar[str] = "messages"
    request_fields: ClassVar[JsonObject] = EMPTY

    # Whether clients that begin an answer themselves expect only the rest of it, never the whole.
    continues_prefills: ClassVar[bool] = False

    reply_id_prefix: ClassVar[str] = ""
    request_id_headers: ClassVar[tuple[str, ...]] = ("request-id", "x-request-id")
    # Whether an answer is one text: clients send several texts back as its paragraphs.
    has_single_text: ClassVar[bool] = False
    # Whether the vendor stores answers, and a request can continue one by its id.
    stores_answers: ClassVar[bool] = False
    allows_comments: ClassVar[bool] = True  # whether clients of this vendor skip comment lines of an event stream
    not_found_kind: ClassVar[ErrorKind] = "not_found"  # the kind of a 404 that is not about a model

    # `usage_field` is the JSON key, in quotes, whose object has the token counts.
    usage_field: ClassVar[bytes] = b'"usage"'
    splits_usage: ClassVar[bool] = False  # whether a stream has counts both at its start and at its end
    # Matches the final event of a complete stream. Quotes within a text are escaped.
    final_event: ClassVar[re.Pattern[bytes]]

    models_path: ClassVar[str] = "/models"
    # Matches reply headers with the limits of an account or a subscription.
    limit_headers: ClassVar[re.Pattern[str]] = re.compile(r"x-ratelimit-")
    # Other dialects that servers of this one often accept, and the path to test it.
    probe_paths: ClassVar[Mapping[str, str]] = EMPTY

    def match_path(self, path: str) -> ModelPath | None:
        """For vendors whose paths name the model."""
        return None

    def path_for_model(self, path: str, *, model: str, verb: str) -> str:
        return path

    def is_caller(self, path: str, headers: Mapping[str, str]) -> bool:
        """Whether a request to an unknown path comes from a client of this vendor."""
        return False

    def request_headers(self, switches: Switches) -> Mapping[str, str]:
        """Headers that a request needs besides the key."""
        return self.default_headers

    def wants_stream(self, request: JsonObject, verb: str) -> bool:
        return request.get("stream") is True

    def wants_stream_usage(self, request: JsonObject) -> bool:
        return True

    def wants_own_model_list(self, query: str) -> bool:
        """Whether a client of this vendor expects a list of models in a form that only the vendor can give."""
        return False

    def wants_array(self, query: str) -> bool:
        """Whether the client expects its stream as one JSON array instead of server-sent events."""
        return False

    def references_in(self, request: JsonObject) -> Iterable[Reference]:
        """References that need a whole item of the parsed `request_fields`."""
        return ()

    def lenient_references(self, field: str, value: object) -> Iterator[Reference]:
        """References in one field of a body that only a lenient parser accepts."""
        return iter(())

    def count_types(self, request: JsonObject) -> int:
        """The number of `CountedText` in the parsed request: a duplicate key replaces one."""
        return 0

    def issued_ids(self, request: JsonObject) -> IssuedIds | None:
        """Where a reply has ids that the vendor stores for later requests; None if it stores nothing."""
        return None

    def listed_ids(self, path: str) -> IssuedIds | None:
        """The same for a path from the configuration."""
        return None

    def item_id(self, part: JsonObject) -> str:
        """The id of the stored item that a part refers to; '' for any other part."""
        return ""

    def is_stored(self, reply: bytes) -> bool:
        return self.stores_answers

    @staticmethod
    def read_usage(raw: JsonObject) -> Usage:
        raise NotImplementedError

    def read_other_usage(self, counts: JsonObject) -> Usage:
        """Usage of other calls: embeddings, images, audio."""
        return self.read_usage(counts)

    def has_final_event(self, tail: bytes, text: bytes) -> bool:
        """Whether a stream is surely complete. `text` is its recorded part."""
        return self.final_event.search(tail) is not None and b'"error"' not in tail

    def encode_token_count(self, tokens: int) -> JsonDict:
        return {"input_tokens": tokens}

    def encode_model(self, model: ListedModel) -> JsonDict:
        raise NotImplementedError

    def encode_models(self, models: Sequence[ListedModel]) -> JsonDict:
        raise NotImplementedError

    def read_models(self, listed: JsonObject) -> Iterator[ListedModel]:
        """Models that can chat."""
        raise NotImplementedError


def can_chat(name: str) -> bool:
    """Decided by name, because most lists do not name the purpose of a model."""
    return not _NOT_FOR_CHAT.search(name)
