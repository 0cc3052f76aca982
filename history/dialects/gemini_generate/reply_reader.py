"""Reader of Gemini's replies, streams, errors and usage. A chunk of a stream has the shape of a whole reply."""

from collections.abc import Iterator
from dataclasses import replace

from history.answers import events
from history.dialects.errors import ERRORS, failure_event, read_body
from history.dialects.json_access import as_count, as_int, from_base64, index_of, obj, objs, string
from history.dialects.replies import ReplyReader
from history.dialects.request_decoder import as_other
from history.dialects.sse import Finality
from history.dialects.tools import arguments_text, call_id_for
from history.entries import JsonObject, Usage

DIALECT = "gemini-generate"

REASONS: dict[str, events.EndReason] = {
    "STOP": "stop",
    "MAX_TOKENS": "length",
    **dict.fromkeys(
        (
            *("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII"),
            *("IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
        ),
        "content_filter",
    ),
}
KINDS: dict[str, events.ErrorKind] = {names.google: kind for kind, names in ERRORS.items()}
KINDS["INVALID_ARGUMENT"] = "invalid_request"


def _retry_after(details: list[JsonObject]) -> float | None:
    """Google sends the delay in the body and in no header: ``"retryDelay": "34.07s"``."""
    delay = next((delay for detail in details if (delay := string(detail.get("retryDelay")))), "")
    try:
        seconds = float(delay.removesuffix("s"))
    except ValueError:
        return None
    return seconds if 0 <= seconds < float("inf") else None


def usage_from(raw: JsonObject) -> Usage:
    """Gemini's promptTokenCount includes cached tokens; its candidatesTokenCount excludes thoughts."""
    thoughts = as_count(raw.get("thoughtsTokenCount"))
    return Usage(
        input_tokens=as_count(raw.get("promptTokenCount")) + as_count(raw.get("toolUsePromptTokenCount")),
        output_tokens=as_count(raw.get("candidatesTokenCount")) + thoughts,
        cache_read_tokens=as_count(raw.get("cachedContentTokenCount")),
        reasoning_tokens=thoughts,
        raw=raw,
    )


class GeminiReplyReader(ReplyReader):
    final_marks = (b'"finishReason"', b'"blockReason"', b'"error"')

    def __init__(self, provider: str = "") -> None:
        super().__init__(provider)
        self._call_ids: set[str] = set()
        self._repeats: dict[str, int] = {}
        self._first: int | None = None
        self._others: dict[int, GeminiReplyReader] = {}

    @staticmethod
    def decode_error(status: int, body: bytes | JsonObject) -> events.AnswerFailed:
        reply = read_body(body)
        error = obj(reply.get("error"))
        status = status or as_int(error.get("code")) or 0
        code = string(error.get("status"))
        message = string(error.get("message")) or string(reply.get("error"))
        details = objs(error.get("details"))
        # A wrong key is an invalid argument to Google; only the details are specific.
        has_wrong_key = any(detail.get("reason") == "API_KEY_INVALID" for detail in details)
        kind: events.ErrorKind | None = "authentication" if has_wrong_key else KINDS.get(code)
        answer = failure_event(reply, status, message=message, code=code, kind=kind)
        return replace(answer, retry_after=_retry_after(details))

    @staticmethod
    def finality(name: str, event: JsonObject) -> Finality | None:
        """Gemini has no final event: the chunk with the finish reason is the last one, unless another follows."""
        event = obj(event.get("response")) or event
        if "error" in event:
            return Finality.OVER
        candidates = objs(event.get("candidates"))
        is_blocked = bool(string(obj(event.get("promptFeedback")).get("blockReason")))
        if is_blocked or any(string(candidate.get("finishReason")) for candidate in candidates):
            return Finality.COMPLETE
        return Finality.OPEN if candidates else None

    def read(self, name: str, event: JsonObject) -> Iterator[events.Event]:
        """Events, and the objects of the array that Gemini streams without ``alt=sse``, are the same chunks."""
        return self.read_reply(event)

    def read_reply(self, reply: JsonObject) -> Iterator[events.Event]:
        # The internal API of Google's own tools has the reply one level deeper.
        chunk = obj(reply.get("response")) or reply
        if "error" in chunk:
            yield self.decode_error(0, chunk)
            return
        if chunk.get("modelVersion") or chunk.get("responseId"):
            yield from self.start(chunk, model="modelVersion", request_id="responseId")
        listed = enumerate(objs(chunk.get("candidates")))
        # The answer, and further answers of requests with a `candidateCount`.
        others = {index_of(candidate, place): candidate for place, candidate in listed}
        if self._first is None and others:
            self._first = next(iter(others))
        candidate = others.pop(self._first, {}) if self._first is not None else {}
        yield from self._parts(candidate)
        if usage := obj(chunk.get("usageMetadata")):
            yield events.UsageReported(usage=usage_from(usage))
        if string(obj(chunk.get("promptFeedback")).get("blockReason")):
            yield events.AnswerEnded(reason="content_filter")
        else:
            yield from self._end(candidate)
        for index, other in others.items():
            reader = self._others.setdefault(index, GeminiReplyReader())
            for event in (*reader._parts(other), *reader._end(other)):
                yield events.FurtherAnswerEvent(answer=index, event=event)

    def _parts(self, candidate: JsonObject) -> Iterator[events.Piece]:
        for part in objs(obj(candidate.get("content")).get("parts")):
            yield from self._part(part)

    def _part(self, part: JsonObject) -> Iterator[events.Piece]:
        """A signature is a part of its own: after the text it came with, so as not to split the text, else before."""
        signature, text = string(part.get("thoughtSignature")), part.get("text")
        if part.get("thought") is True:
            yield events.ReasoningPiece(part=self.same_part("thought"), text=string(text), signature=signature)
            return
        if isinstance(text, str) and text:
            yield events.TextPiece(part=self.same_part("text"), text=text)
        if signature:
            yield events.ReasoningPiece(part=self.new_part("signature"), signature=signature)
        if isinstance(text, str):
            return
        if call := obj(part.get("functionCall")):
            yield self._call(call)
        elif (content := from_base64(obj(part.get("inlineData")).get("data"))) is not None:
            media_type = string(obj(part.get("inlineData")).get("mimeType"))
            yield events.MediaPiece(part=self.new_part("media"), media_type=media_type, data=content)
        elif any(name != "thoughtSignature" for name in part):
            yield events.OtherPiece(part=self.new_part("other"), data=as_other(part))

    def _call(self, call: JsonObject) -> events.ToolCallPiece:
        name, arguments = string(call.get("name")), arguments_text(call.get("args"))
        call_id = string(call.get("id")) or call_id_for(name, arguments, taken=self._call_ids, repeats=self._repeats)
        self._call_ids.add(call_id)
        return events.ToolCallPiece(part=self.new_part("call"), call_id=call_id, name=name, arguments=arguments)

    def _end(self, candidate: JsonObject) -> Iterator[events.AnswerEnded]:
        if word := string(candidate.get("finishReason")):
            reason = REASONS.get(word, "other")
            yield events.AnswerEnded(reason="tool_use" if reason == "stop" and self._call_ids else reason)
