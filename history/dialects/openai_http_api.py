"""HTTP API that OpenAI's two dialects share: base URL, model list, errors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from history.answers.events import ErrorKind
from history.dialects.http_api import HttpApi, ListedModel, can_chat
from history.dialects.json_access import count, obj, objs, string

# vLLM, OpenRouter, Mistral and llama.cpp each have a name of their own for it; OpenAI does not list it.
_WINDOWS = ("max_model_len", "context_length", "max_context_length", "context_window")


class OpenAIApi(HttpApi):
    version_in_base_url = "/v1"
    # OpenAI's clients take "not_found" for a missing model.
    not_found_kind: ClassVar[ErrorKind] = "invalid_request"

    def encode_model(self, model: ListedModel) -> dict[str, Any]:
        return {"id": model.name, "object": "model", "created": 0, "owned_by": model.owner or "parley"}

    def encode_models(self, models: Sequence[ListedModel]) -> dict[str, Any]:
        return {"object": "list", "data": [self.encode_model(model) for model in models]}

    def read_models(self, listed: Mapping[str, Any]) -> Iterator[ListedModel]:
        """The newest first, where the list has dates."""
        found = [item for item in objs(listed.get("data")) if can_chat(string(item.get("id")))]
        for item in sorted(found, key=lambda item: -count(item.get("created"))):
            yield ListedModel(name=string(item.get("id")), label=string(item.get("name")), window=_window(item))


def _window(item: Mapping[str, Any]) -> int:
    found = next((count(item[name]) for name in _WINDOWS if count(item.get(name))), 0)
    return found or count(obj(item.get("meta")).get("n_ctx_train"))
