"""Anthropic Messages: results of parallel calls in one user message, signed thinking returned unchanged."""

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from history.dialects.anthropic_messages.reply_reader import AnthropicReplyReader, usage_from
from history.dialects.anthropic_messages.reply_writer import AnthropicReplyWriter
from history.dialects.anthropic_messages.request_decoder import AnthropicRequestDecoder
from history.dialects.anthropic_messages.request_encoder import AnthropicRequestEncoder
from history.dialects.dialect import Dialect
from history.dialects.http_api import HttpApi, ListedModel
from history.dialects.json_access import as_count, obj, objs, string
from history.dialects.references import AnyObject, Container, ContentBlock, IssuedIds, ObjectWithId, ObjectWithType
from history.dialects.types import Switches
from history.entries import JsonDict, JsonObject

VERSION = "2023-06-01"
# Anthropic requires it for the role `system` among the messages.
INLINE_SYSTEM_BETA = "mid-conversation-system-2026-04-07"
PUBLISHED = "2026-01-01T00:00:00Z"  # SDKs require a publication date, and only the vendor knows it


class _Message(msgspec.Struct):
    content: str | list[ContentBlock] | AnyObject | None = None


class _Reply(msgspec.Struct):
    container: ObjectWithId | None = None
    message: "_Reply | None" = None
    delta: "_Reply | None" = None


def _container_ids(reply: _Reply) -> Iterator[str | None]:
    for part in (reply, reply.message, reply.delta):
        if part is not None and part.container is not None:
            yield part.container.id


CONTAINERS = IssuedIds(b'"container"', msgspec.json.Decoder(_Reply), _container_ids)


class AnthropicApi(HttpApi):
    vendor = "anthropic"
    paths = {"/v1/messages": "chat", "/v1/messages/count_tokens": "count"}
    key_header = "x-api-key"
    default_headers = {"anthropic-version": VERSION}
    request_fields = {"messages": list[_Message], "container": Container | None, "tools": list[ObjectWithType] | None}
    continues_prefills = True
    reply_id_prefix = "msg_"
    request_id_headers = (*HttpApi.request_id_headers, "anthropic-request-id")
    splits_usage = True
    read_usage = staticmethod(usage_from)
    final_event = re.compile(rb'"message_delta"')
    models_path = "/v1/models?limit=1000"
    limit_headers = re.compile(r"anthropic-ratelimit-")

    def is_caller(self, path: str, headers: Mapping[str, str]) -> bool:
        return "anthropic-version" in headers or path.startswith("/v1/messages")

    def request_headers(self, switches: Switches) -> Mapping[str, str]:
        if not switches.inline_system:
            return self.default_headers
        return {**self.default_headers, "anthropic-beta": INLINE_SYSTEM_BETA}

    def issued_ids(self, request: JsonObject) -> IssuedIds | None:
        # Vendor tools run in a container. A client's own tools have no type or the type `custom`.
        types = {getattr(tool, "type", None) for tool in request.get("tools") or ()}
        return CONTAINERS if "container" in request or types - {None, "custom"} else None

    def encode_model(self, model: ListedModel) -> JsonDict:
        return {"type": "model", "id": model.name, "display_name": model.label, "created_at": PUBLISHED}

    def encode_models(self, models: Sequence[ListedModel]) -> JsonDict:
        ends = {"first_id": models[0].name, "last_id": models[-1].name} if models else {}
        return {"data": [self.encode_model(model) for model in models], "has_more": False, **ends}

    def read_models(self, listed: JsonObject) -> Iterator[ListedModel]:
        for item in objs(listed.get("data")):
            if item.get("lifecycle") != "retired":
                images = obj(obj(item.get("capabilities")).get("image_input")).get("supported")
                yield ListedModel(
                    name=string(item.get("id")),
                    label=string(item.get("display_name")),
                    window=as_count(item.get("max_input_tokens")),
                    takes_images=images is not False,
                )


DIALECT = Dialect(
    AnthropicApi(), AnthropicRequestEncoder, AnthropicRequestDecoder, AnthropicReplyReader, AnthropicReplyWriter
)
