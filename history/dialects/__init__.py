"""Wire formats of vendors: requests, replies, streams and errors, encoded and decoded without I/O.

A dialect is a folder with the functions of `Dialect`. `encode` writes a context as a request; `stream_decoder`,
`decode_reply` and `decode_error` read the reply. `decode_request`, `encode_reply`, `stream_encoder` and `encode_error`
serve clients of the vendor. `HTTP_API` has the facts of its HTTP API. `losses` lists content that a dialect cannot
express. docs/dialects.md has the rules and their tests.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from history.answers.events import Event, Failed
from history.context import Context
from history.dialects import anthropic_messages, gemini_generate, openai_chat, openai_responses
from history.dialects.http_api import HttpApi
from history.dialects.sse import Finality
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
from history.entries import JsonDict, JsonObject, ModelOutput, ToolDefinition


class Dialect(Protocol):
    """One wire format, both ways. Each folder of this package is one."""

    @property
    def HTTP_API(self) -> HttpApi:  # noqa: N802 - a constant of the module
        ...

    @property
    def PROVIDER(self) -> str: ...  # noqa: N802 - a constant of the module

    @property
    def FINAL_MARKS(self) -> tuple[bytes, ...]:  # noqa: N802 - a constant of the module
        """Every final event of a stream contains one of these."""
        ...

    def finality(self, name: str, event: JsonObject) -> Finality | None:
        """Whether this event of a stream ends the answer; None if it does not show that."""
        ...

    def encode(self, context: Context, options: CallOptions) -> Encoded:
        """The context must be repaired, as `render_context` and `context_of` return it."""
        ...

    def stream_decoder(self, provider: str = "") -> StreamDecoder: ...

    def decode_reply(self, body: bytes | JsonObject) -> list[Event]: ...

    def decode_error(self, status: int, body: bytes | JsonObject) -> Failed: ...

    def decode_request(self, body: JsonObject, *, provider: str = "", at: datetime | None = None) -> DecodedRequest: ...

    def encode_reply(
        self, output: ModelOutput, *, reply_id: str, created: int = 0, tools: Sequence[ToolDefinition] = ()
    ) -> JsonDict:
        """`tools` are those of the request: calls of some tools have a special form."""
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

    def encode_error(self, error: Failed) -> tuple[int, JsonDict]: ...


DIALECTS: dict[str, Dialect] = {
    "openai-chat": openai_chat,
    "openai-responses": openai_responses,
    "anthropic-messages": anthropic_messages,
    "gemini-generate": gemini_generate,
}
# The dialect of most servers, and of errors for unknown clients.
DEFAULT_DIALECT = "openai-chat"
