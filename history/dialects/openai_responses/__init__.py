"""OpenAI Responses: a flat list of items; reasoning comes before its followers, calls before their outputs."""

import re
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from history.dialects import references
from history.dialects.dialect import Dialect
from history.dialects.json_access import items, obj, string
from history.dialects.openai_common import OpenAIApi, usage_from_responses
from history.dialects.openai_responses.reply_reader import ResponsesReplyReader
from history.dialects.openai_responses.reply_writer import ResponsesReplyWriter
from history.dialects.openai_responses.request_decoder import ResponsesRequestDecoder
from history.dialects.openai_responses.request_encoder import ResponsesRequestEncoder
from history.entries import JsonDict, JsonObject, Usage

# The field without which the vendor must look up an item of this type.
_COMPLETE_WITH = {"reasoning": "encrypted_content", "image_generation_call": "result", "file_search_call": "results"}
_LOOKED_UP = frozenset({None, "item_reference", *_COMPLETE_WITH})
_NULL = msgspec.Raw(b"null")
_NOT_STORED = re.compile(rb'"store"\s*:\s*false')
_EMPTY = (b"null", b'""', b"[]")


class _Item(msgspec.Struct):
    """The fields that show whether an item is complete."""

    type: str | None = None
    id: str | None = None
    encrypted_content: msgspec.Raw = _NULL
    result: msgspec.Raw = _NULL
    results: msgspec.Raw = _NULL

    @property
    def is_complete(self) -> bool:
        needed = _COMPLETE_WITH.get(self.type or "")
        return needed is None or bytes(memoryview(getattr(self, needed))[:5]) not in _EMPTY


class _Tool(msgspec.Struct):
    vector_store_ids: list[references.VectorStore] | None = None
    container: references.Container | None = None
    environment: references.Container | None = None
    input_image_mask: references.ContentBlock | None = None
    tools: "str | list[_Tool] | None" = None


class _InputItem(_Item):
    type: references.CountedText | None = None
    content: str | list[references.ContentBlock] | references.AnyObject | None = None
    output: references.Content = None
    tools: str | list[_Tool] | None = None

    @property
    def is_reference(self) -> bool:
        """The API looks an incomplete item up by its id."""
        if self.type not in _LOOKED_UP or not self.id:
            return False
        if self.type is None:
            return not self.content
        return self.type == "item_reference" or not self.is_complete


class _OutputItem(_Item):
    container_id: str | None = None


class _Reply(msgspec.Struct):
    """An event with an item, a whole reply, or a list of items."""

    type: str | None = None
    item: _OutputItem | None = None
    output: list[_OutputItem] | None = None
    data: list[_OutputItem] | None = None


def _stored_ids(reply: _Reply) -> Iterator[str | None]:
    for item in (reply.item, *(reply.output or ()), *(reply.data or ())):
        if item is not None:
            yield from (item.id, item.container_id)


def _incomplete_ids(reply: _Reply) -> Iterator[str | None]:
    """Ids of incomplete items: without storage, only these must go back."""
    done = reply.item if reply.type == "response.output_item.done" else None
    for item in (done, *(reply.output or ())):
        if item is not None and not item.is_complete:
            yield item.id


_decoder = msgspec.json.Decoder(_Reply)
ITEMS_STORED = references.IssuedIds(b'"response.output_item.', _decoder, _stored_ids)
ITEMS_NOT_STORED = references.IssuedIds(b'"response.output_item.done', _decoder, _incomplete_ids)


class ResponsesApi(OpenAIApi):
    paths = {"/v1/responses": "chat", "/v1/responses/input_tokens": "count"}
    conversation_field = "input"
    request_fields = {
        "input": str | list[_InputItem] | None,
        "prompt": references.Prompt | None,
        "tools": list[_Tool] | None,
        "store": Any,
    }
    reply_id_prefix = "resp_"
    # Of a ChatGPT plan. `x-codex-turn-state` is a state that the client returns.
    limit_headers = re.compile(r"x-ratelimit-|x-codex-(?!turn-)")
    stores_answers = True
    read_usage = staticmethod(usage_from_responses)

    def wants_own_model_list(self, query: str) -> bool:
        """Codex names its version, and reads more about each model than OpenAI's list has."""
        return query.startswith("client_version=") or "&client_version=" in query

    def references_in(self, request: JsonObject) -> Iterable[references.Reference]:
        return [
            references.Reference(references.ITEM, item.id)
            for item in items(request.get("input"))
            if item.id and item.is_reference
        ]

    def lenient_references(self, field: str, value: object) -> Iterator[references.Reference]:
        for item in map(obj, items(value) if field == "input" else ()):
            kind, name = item.get("type"), string(item.get("id"))
            needed = "content" if kind is None else _COMPLETE_WITH.get(str(kind), "")
            if name and (kind == "item_reference" or (needed and not item.get(needed))):
                yield references.Reference(references.ITEM, name)

    def count_types(self, request: JsonObject) -> int:
        return sum(1 for item in items(request.get("input")) if item.type is not None)

    def issued_ids(self, request: JsonObject) -> references.IssuedIds | None:
        return ITEMS_NOT_STORED if request.get("store") is False else ITEMS_STORED

    def listed_ids(self, path: str) -> references.IssuedIds | None:
        return ITEMS_STORED if path.startswith(("/v1/responses/", "/v1/conversations")) else None

    def item_id(self, part: JsonObject) -> str:
        return string(part.get("id")) if part.get("type") == "item_reference" else ""

    def is_stored(self, reply: bytes) -> bool:
        return not _NOT_STORED.search(reply)

    def has_final_event(self, tail: bytes, text: bytes) -> bool:
        return b'"response.completed"' in text or b'"response.incomplete"' in text

    def read_other_usage(self, counts: JsonObject) -> Usage:
        return usage_from_responses(counts)

    def encode_token_count(self, tokens: int) -> JsonDict:
        return {"object": "response.input_tokens", "input_tokens": tokens}


DIALECT = Dialect(
    ResponsesApi(), ResponsesRequestEncoder, ResponsesRequestDecoder, ResponsesReplyReader, ResponsesReplyWriter
)
