"""Wire formats of the vendors, both ways: JSON and bytes to typed values and back.

No I/O, no Django, no key and no host. A dialect is a folder with the functions of `Dialect`. `encode` writes a context
as a request; `stream_decoder`, `decode_reply` and `decode_error` read the reply; `decode_request`, `encode_reply`,
`stream_encoder` and `encode_error` do the same for clients of the vendor. `HTTP_API` has the facts of its HTTP API.
What a dialect cannot express is listed in `losses`. docs/dialects.md has the rules and the tests that show them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol

from history.answers.events import Event, Failed
from history.context import Context
from history.dialects import anthropic_messages, gemini_generate, openai_chat, openai_responses
from history.dialects.finality import Finality
from history.dialects.http_api import HttpApi
from history.dialects.types import CallOptions as CallOptions
from history.dialects.types import DecodedRequest as DecodedRequest
from history.dialects.types import DialectError as DialectError
from history.dialects.types import Encoded as Encoded
from history.dialects.types import Loss as Loss
from history.dialects.types import LossCode as LossCode
from history.dialects.types import StreamDecoder as StreamDecoder
from history.dialects.types import StreamEncoder as StreamEncoder
from history.dialects.types import Switches as Switches
from history.dialects.types import context_of as context_of
from history.entries import ModelOutput, ToolDefinition


class Dialect(Protocol):
    """One wire format, both ways. Each folder of this package is one."""

    @property
    def HTTP_API(self) -> HttpApi:  # noqa: N802 - a constant of the module
        """What is to be known of the vendor's API besides the conversation."""
        ...

    @property
    def PROVIDER(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def FINAL_MARKS(self) -> tuple[bytes, ...]:  # noqa: N802 - a constant of the module
        """Every event that `finality` calls an end holds one of these."""
        ...

    def finality(self, name: str, data: Mapping[str, Any]) -> Finality | None:
        """Whether that event of a stream ends the answer; None where it says nothing about it."""
        ...

    def encode(self, context: Context, options: CallOptions) -> Encoded:
        """The context must be paired, as `render_context` and `context_of` leave it."""
        ...

    def stream_decoder(self, provider: str = "") -> StreamDecoder: ...

    def decode_reply(self, body: bytes | Mapping[str, Any]) -> list[Event]: ...

    def decode_error(self, status: int, body: bytes | Mapping[str, Any]) -> Failed: ...

    def decode_request(
        self, body: Mapping[str, Any], *, provider: str = "", at: datetime | None = None
    ) -> DecodedRequest: ...

    def encode_reply(
        self, output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()
    ) -> dict[str, Any]:
        """`tools` are those of the request: some are called in a form of their own."""
        ...

    def stream_encoder(
        self,
        *,
        model: str,
        reply_id: str,
        created: int = 0,
        with_usage: bool = True,
        tools: Sequence[ToolDefinition] = (),
    ) -> StreamEncoder: ...

    def encode_error(self, error: Failed) -> tuple[int, dict[str, Any]]: ...


DIALECTS: dict[str, Dialect] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic-messages": anthropic_messages,
    "gemini-generate": gemini_generate,
}
# Most servers speak it, and errors for an unknown client are written in it.
DEFAULT_DIALECT = "openai-chat"
