"""`Dialect`: the wire format of one vendor, both ways, made of the classes in its folder."""

from dataclasses import dataclass
from datetime import datetime

from history.answers.events import Event, Failed
from history.context.values import Context
from history.dialects.http_api import HttpApi
from history.dialects.replies import read_body
from history.dialects.reply_decoder import ReplyDecoder
from history.dialects.reply_encoder import ReplyEncoder
from history.dialects.request_decoder import RequestDecoder
from history.dialects.request_encoder import RequestEncoder
from history.dialects.sse import FinalEventScanner
from history.dialects.types import CallOptions, DecodedRequest, Encoded, Tools
from history.entries import JsonDict, JsonObject, ModelOutput


@dataclass(frozen=True, slots=True)
class Dialect:
    HTTP_API: HttpApi
    request_encoder: type[RequestEncoder]
    request_decoder: type[RequestDecoder]
    stream_decoder: type[ReplyDecoder]
    stream_encoder: type[ReplyEncoder]

    def encode(self, context: Context, options: CallOptions) -> Encoded:
        """The context must be repaired, as `render_context` and `context_of` return it."""
        return self.request_encoder(options, vendor=self.HTTP_API.vendor).encode(context)

    def decode_request(self, body: JsonObject, *, provider: str = "", at: datetime | None = None) -> DecodedRequest:
        return self.request_decoder(provider=provider or self.HTTP_API.vendor, at=at).decode(body)

    def decode_reply(self, body: bytes | JsonObject) -> list[Event]:
        return list(self.stream_decoder().read_reply(read_body(body)))

    def decode_error(self, status: int, body: bytes | JsonObject) -> Failed:
        return self.stream_decoder.decode_error(status, body)

    def encode_error(self, error: Failed) -> tuple[int, JsonDict]:
        return self.stream_encoder.encode_error(error)

    def encode_reply(self, output: ModelOutput, *, reply_id: str, created: int = 0, tools: Tools = ()) -> JsonDict:
        """`tools` are those of the request: calls of some tools have a special form."""
        return self.stream_encoder(model=output.model, reply_id=reply_id, created=created, tools=tools).encode(output)

    def final_event_scanner(self) -> FinalEventScanner:
        return FinalEventScanner(self.stream_decoder.final_marks, self.stream_decoder.finality)
