"""`Dialect`: the wire format of one vendor, both ways, and its HTTP API."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from history.answers.events import AnswerFailed, Event, end_reason
from history.context.values import Context, Role
from history.dialects.errors import read_body
from history.dialects.http_api import HttpApi
from history.dialects.replies import ReplyReader, ReplyWriter
from history.dialects.reply_decoder import ReplyDecoder
from history.dialects.reply_encoder import ReplyEncoder
from history.dialects.request_decoder import RequestDecoder
from history.dialects.request_encoder import EncodedEntry, RequestEncoder
from history.dialects.sse import FinalEventScanner
from history.dialects.types import CallOptions, DecodedRequest, EncodedRequest, LossCode, Tools
from history.entries import JsonDict, JsonObject, ModelOutput


@dataclass(frozen=True, slots=True)
class Dialect:
    HTTP_API: HttpApi
    request_encoder: type[RequestEncoder]
    request_decoder: type[RequestDecoder]
    reply_reader: type[ReplyReader]
    reply_writer: type[ReplyWriter]

    def encode(self, context: Context, options: CallOptions) -> EncodedRequest:
        """The context must be repaired, as `render_context` and `context_of` return it."""
        encoder = self.request_encoder(options, vendor=self.HTTP_API.vendor)
        context = encoder.adapted(context)
        path, body = encoder.request(context, list(_encode_entries(encoder, context)))
        debug = {}
        if options.include_debug:
            debug = {
                "dialect": encoder.dialect,
                "origins": [list(entry.origin) for entry in context.entries],
                "tokens": context.tokens,
                "repairs": [remark.code.value for remark in context.report.remarks],
                "losses": [loss.code.value for loss in encoder.losses],
            }
        losses = tuple(encoder.losses)
        return EncodedRequest(body=body, path=path, losses=losses, supplied=encoder.supplied, debug=debug)

    def decode_request(self, body: JsonObject, *, provider: str = "", at: datetime | None = None) -> DecodedRequest:
        return self.request_decoder(provider=provider or self.HTTP_API.vendor, at=at).decode(body)

    def stream_decoder(self, provider: str = "") -> ReplyDecoder:
        return ReplyDecoder(self.reply_reader(provider))

    def decode_reply(self, body: bytes | JsonObject) -> list[Event]:
        return list(self.reply_reader().read_reply(read_body(body)))

    def decode_error(self, status: int, body: bytes | JsonObject) -> AnswerFailed:
        return self.reply_reader.decode_error(status, body)

    def encode_error(self, error: AnswerFailed) -> tuple[int, JsonDict]:
        return self.reply_writer.encode_error(error)

    def encode_reply(self, output: ModelOutput, *, reply_id: str, created: int = 0, tools: Tools = ()) -> JsonDict:
        """`tools` are those of the request: calls of some tools have a special form."""
        writer = self.reply_writer(model=output.model, reply_id=reply_id, created=created, tools=tools)
        writer.usage = output.usage
        reason = output.end_reason or ("tool_use" if output.tool_requests else "stop")
        return writer.write_reply(output, end_reason(reason))

    def stream_encoder(
        self, *, model: str, reply_id: str, created: int = 0, with_usage: bool = True, tools: Tools = ()
    ) -> ReplyEncoder:
        writer = self.reply_writer(model=model, reply_id=reply_id, created=created, with_usage=with_usage, tools=tools)
        return ReplyEncoder(writer)

    def final_event_scanner(self) -> FinalEventScanner:
        return FinalEventScanner(self.reply_reader.final_marks, self.reply_reader.finality)


def _encode_entries(encoder: RequestEncoder, context: Context) -> Iterator[EncodedEntry]:
    """Losses refer to the current entry."""
    encoders = {Role.MODEL_OUTPUT: encoder.answer, Role.TOOL_RESULT: encoder.results, Role.SYSTEM: encoder.instruction}
    for entry in context.entries:
        encoder.seq = entry.seq
        if entry.role is Role.SYSTEM:
            encoder.leave_out(entry.parts)
        encoded = encoders.get(entry.role, encoder.input)(entry)
        if not encoded:
            encoder.lose(LossCode.MESSAGE_LEFT_OUT)
        yield entry, encoded
    encoder.seq = 0
