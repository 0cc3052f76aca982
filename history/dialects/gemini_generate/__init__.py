"""Gemini generateContent: as many responses as calls, signatures on the parts that they belong to."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import get_type_hints
from urllib.parse import quote

import msgspec

from history.dialects.dialect import Dialect
from history.dialects.gemini_generate.reply_reader import GeminiReplyReader, usage_from
from history.dialects.gemini_generate.reply_writer import GeminiReplyWriter
from history.dialects.gemini_generate.request_decoder import GeminiRequestDecoder
from history.dialects.gemini_generate.request_encoder import GeminiRequestEncoder
from history.dialects.http_api import CallKind, HttpApi, ListedModel, ModelPath, can_chat
from history.dialects.json_access import as_count, items, objs, string
from history.dialects.references import Cache, FileStore, FileUri
from history.entries import JsonDict, JsonObject

STREAM = "streamGenerateContent"
VERBS: dict[str, CallKind] = {
    "generateContent": "chat",
    STREAM: "chat",
    "countTokens": "count",
    "embedContent": "other",
    "batchEmbedContents": "other",
}
METHODS = ["generateContent", STREAM, "countTokens"]
# A model's name may have a colon of its own, as in qwen3:8b; the verb follows the last one.
_PATH = re.compile(r"/v1(?:beta)?/models/(?P<model>[^?#\x00-\x1f\x7f]+):(?P<verb>\w+)")


class _FileData(msgspec.Struct):
    fileUri: FileUri | None = None  # noqa: N815 - Google's names
    file_uri: FileUri | None = None


class _Part(msgspec.Struct):
    fileData: _FileData | None = None  # noqa: N815
    file_data: _FileData | None = None
    functionResponse: "_Content | None" = None  # noqa: N815
    function_response: "_Content | None" = None


class _Content(msgspec.Struct):
    parts: list[_Part] | _Part | None = None


class _FileSearch(msgspec.Struct):
    fileSearchStoreNames: list[FileStore] | None = None  # noqa: N815
    file_search_store_names: list[FileStore] | None = None


class _Tool(msgspec.Struct):
    fileSearch: _FileSearch | None = None  # noqa: N815
    file_search: _FileSearch | None = None


class _Request(msgspec.Struct):
    """A request to count tokens may hold a whole request."""

    contents: str | list[_Content] | _Content | None = None
    systemInstruction: str | _Content | None = None  # noqa: N815
    system_instruction: str | _Content | None = None
    cachedContent: Cache | None = None  # noqa: N815
    cached_content: Cache | None = None
    tools: list[_Tool] | _Tool | None = None
    generateContentRequest: "_Request | None" = None  # noqa: N815
    generate_content_request: "_Request | None" = None


class GeminiApi(HttpApi):
    vendor = "gemini"
    key_header = "x-goog-api-key"
    conversation_field = "contents"
    request_fields = get_type_hints(_Request)
    request_id_headers = (*HttpApi.request_id_headers, "x-goog-request-id")
    allows_comments = False  # its SDK for JavaScript parses every line that is not empty
    usage_field = b'"usageMetadata"'
    read_usage = staticmethod(usage_from)
    final_event = re.compile(rb'"finishReason":\s*"')
    models_path = "/v1beta/models?pageSize=1000"

    def match_path(self, path: str) -> ModelPath | None:
        match = _PATH.fullmatch(path)
        kind = VERBS.get(match["verb"]) if match else None
        return ModelPath(model=match["model"], verb=match["verb"], kind=kind) if match and kind else None

    def path_for_model(self, path: str, *, model: str, verb: str) -> str:
        return f"{path.partition('/models/')[0]}/models/{quote(model, safe='')}:{verb}"

    def is_caller(self, path: str, headers: Mapping[str, str]) -> bool:
        return path.startswith("/v1beta") or "x-goog-api-key" in headers or self.match_path(path) is not None

    def wants_stream(self, request: JsonObject, verb: str) -> bool:
        return verb == STREAM

    def wants_array(self, query: str) -> bool:
        return "alt=sse" not in query

    def encode_token_count(self, tokens: int) -> JsonDict:
        return {"totalTokens": tokens}

    def encode_model(self, model: ListedModel) -> JsonDict:
        window = {"inputTokenLimit": model.window} if model.window else {}
        name = f"models/{model.name}"
        return {"name": name, "displayName": model.label, "supportedGenerationMethods": METHODS, **window}

    def encode_models(self, models: Sequence[ListedModel]) -> JsonDict:
        return {"models": [self.encode_model(model) for model in models]}

    def read_models(self, listed: JsonObject) -> Iterator[ListedModel]:
        for item in objs(listed.get("models")):
            name = string(item.get("name"))
            if "generateContent" in items(item.get("supportedGenerationMethods")) and can_chat(name):
                yield ListedModel(
                    name=name.removeprefix("models/"),
                    label=string(item.get("displayName")),
                    window=as_count(item.get("inputTokenLimit")),
                )


DIALECT = Dialect(GeminiApi(), GeminiRequestEncoder, GeminiRequestDecoder, GeminiReplyReader, GeminiReplyWriter)
