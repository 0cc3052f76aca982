"""What is kept of a relayed call is what its key allows: no more, and no less without a word about it."""

from __future__ import annotations

import base64
import json
from typing import Any, ClassVar

import pytest
from django.apps import apps

from history.access import keys
from history.models import Blob, Exchange, Message, Session
from history.verification import verify
from relay.models import KeyMinute
from tests.relay.digest.programs import Chat
from tests.relay.digest.relayed import Relay, exchange_of, model_answer, path_of, sessions

pytestmark = pytest.mark.django_db

CHAT, ANTHROPIC = "openai-chat", "anthropic-messages"
QUESTION: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}
SECRET = "sk-" + "proj-" + "a1B2c3D4" * 6


def in_mode(relay: Relay, mode: str) -> Relay:
    relay.key = keys.create(name=mode, owner=relay.key.owner, recording=mode).api_key
    return relay


def everything_stored() -> str:
    """All rows of all tables."""
    values = [value for model in apps.get_models() for row in model._default_manager.values_list() for value in row]
    return "\n".join(
        bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value) for value in values
    )


def document(media_type: str, text: str | bytes, *, is_plain: bool = False) -> dict[str, Any]:
    if is_plain:
        return {"type": "document", "source": {"type": "text", "media_type": media_type, "data": text}}
    raw = text if isinstance(text, bytes) else text.encode()
    source = {"type": "base64", "media_type": media_type, "data": base64.b64encode(raw).decode()}
    return {"type": "document", "source": source}


def reading(*documents: dict[str, Any]) -> dict[str, Any]:
    content = [*documents, {"type": "text", "text": "Read this."}]
    return {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}


class TestFiles:
    @pytest.mark.parametrize(
        "file",
        [
            document("text/plain", f"The key is {SECRET}.", is_plain=True),
            document("text/plain", f"The key is {SECRET}."),
            document("application/json", f'{{"key": "{SECRET}"}}'),
            document("image/svg+xml", f"<svg><!-- {SECRET} --></svg>"),
            document("application/octet-stream", f"The key is {SECRET}."),
            document("text/plain", f"The key is {SECRET}.".encode("utf-16")),
            document("text/plain", f"Schlüssel: {SECRET}".encode("latin-1")),
        ],
        ids=["text", "plain", "json", "svg", "unnamed", "utf-16", "latin-1"],
    )
    def test_a_text_file_is_redacted_like_any_text(self, relay: Relay, file: dict[str, Any]) -> None:
        in_mode(relay, "redacted").relay_call(ANTHROPIC, reading(file), model_answer("It is a key."))
        (blob,) = Blob.objects.all()
        kept = bytes(blob.data)
        text = kept.decode("utf-16" if kept[:2] == b"\xff\xfe" else "latin-1")
        assert "[redacted:openai-key]" in text
        assert SECRET not in text
        message = Message.objects.get(kind="model_input")
        assert message.metadata["redacted"] == {"openai-key": 1}
        assert [link.pk for link in message.blobs.all()] == [blob.pk]
        assert blob.size == len(kept)

    def test_the_conversation_is_recognised_by_the_file_as_it_came(self, relay: Relay) -> None:
        in_mode(relay, "redacted")
        body = reading(document("text/plain", f"The key is {SECRET}."))
        relay.relay_call(ANTHROPIC, body, model_answer("It is a key."))
        body["messages"] += [{"role": "assistant", "content": "It is a key."}, {"role": "user", "content": "Sure?"}]
        relay.relay_call(ANTHROPIC, body, model_answer("Yes."))
        (session,) = sessions()
        assert path_of(session) == ["u:Read this.", "a:It is a key.", "u:Sure?", "a:Yes."]
        assert list(verify(sessions=[session])) == []

    def test_binary_files_and_those_without_a_find_are_kept_as_they_are(self, relay: Relay) -> None:
        picture, plain = b"\x89PNG\r\n\x1a\n" + bytes(20), b"Nothing to hide."
        image = document("image/png", picture) | {"type": "image"}
        in_mode(relay, "redacted").relay_call(
            ANTHROPIC, reading(image, document("text/plain", plain)), model_answer("Nice.")
        )
        kept = {bytes(blob.data): blob.media_type for blob in Blob.objects.all()}
        assert kept == {picture: "image/png", plain: "text/plain"}

    def test_in_mode_full_a_file_is_kept_as_it_came(self, relay: Relay) -> None:
        relay.relay_call(ANTHROPIC, reading(document("text/plain", SECRET)), model_answer("It is a key."))
        assert bytes(Blob.objects.get().data) == SECRET.encode()


class TestModeThatChanges:
    """The caller was told a mode when the call was accepted; the key may say another when it is digested."""

    HELLO: ClassVar = {"model": "m", "messages": [{"role": "user", "content": f"My key is {SECRET}."}], "stream": True}
    PROBE: ClassVar = {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": "quota"}]}

    def change(self, relay: Relay, mode: str) -> None:
        relay.key.recording = mode
        relay.key.save()

    def test_what_was_promised_to_be_redacted_is_redacted(self, relay: Relay) -> None:
        in_mode(relay, "redacted")
        exchange = relay.send(CHAT, self.HELLO)
        self.change(relay, "full")
        relay.fail(exchange, 400, f'{{"error": {{"message": "What is {SECRET}?"}}}}'.encode())
        relay.digest()
        assert exchange_of(exchange).error == "What is [redacted:openai-key]?"
        assert SECRET not in everything_stored()

    def test_a_promise_holds_in_a_session_that_is_there_already(self, relay: Relay) -> None:
        in_mode(relay, "redacted")
        talk = Chat(relay)
        talk.relay_call("Hello", model_answer("Hi."))
        later = talk.send(f"My key is {SECRET}.")
        self.change(relay, "full")
        relay.answer(later, model_answer(f"So it is {SECRET}?"))
        relay.digest()
        (session,) = sessions()
        assert session.message_count == 4
        assert SECRET not in everything_stored()

    def test_a_side_call_is_kept_without_its_answer_once_the_key_keeps_no_replies(self, relay: Relay) -> None:
        exchange = relay.send(ANTHROPIC, self.PROBE)
        relay.answer(exchange, model_answer("Hippopotamus"))
        self.change(relay, "no_replies")
        relay.digest()
        assert exchange_of(exchange).metadata["asked"] == "quota"
        assert "Hippopotamus" not in everything_stored()

    def test_nothing_is_written_of_a_call_whose_key_is_off_by_then_but_its_tokens_are_counted(
        self, relay: Relay
    ) -> None:
        exchange = relay.send(CHAT, self.HELLO)
        self.change(relay, "off")
        relay.digest()
        relay.answer(exchange, model_answer("Hippopotamus"), is_counted=False)
        relay.digest()
        assert relay.digester.is_idle
        assert not Exchange.objects.exists()
        assert not Session.objects.exists()
        assert sum(KeyMinute.objects.values_list("tokens", flat=True)) == 25

    def test_a_call_that_is_in_the_record_when_its_key_goes_off_ends_without_a_word(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, self.HELLO)
        relay.digest()
        self.change(relay, "off")
        relay.answer(exchange, model_answer("Hippopotamus"))
        relay.digest()
        assert exchange_of(exchange).end_reason == "done"
        assert "Hippopotamus" not in everything_stored()


class TestErrors:
    @pytest.mark.parametrize("kind", ["chat", "other"])
    @pytest.mark.parametrize("shape", ['{{"error": {{"message": "{}"}}}}', "<html>{}</html>"])
    @pytest.mark.parametrize("cut", [500, 10_000])
    def test_an_error_is_redacted_before_it_is_cut(self, relay: Relay, kind: str, shape: str, cut: int) -> None:
        """What is left of a key after a cut is too short to be known for one."""
        exchange = in_mode(relay, "redacted").send(CHAT, QUESTION, kind=kind)
        before = " " * (cut - 14 - shape.replace("{{", "{").find("{}"))
        body = shape.format(before + SECRET + " and so on" * 50)
        assert body.find(SECRET) == cut - 14
        relay.fail(exchange, 400, body.encode())
        relay.digest()
        row = exchange_of(exchange)
        assert row.error
        assert 400 < len(row.metadata["error_body"]) <= 10_000
        assert SECRET[:12] not in everything_stored()


class TestCompression:
    def test_a_reply_that_cannot_be_unpacked_keeps_its_end_and_the_reason(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, QUESTION)
        relay.journal.reply(exchange, b"\x8b\x02\x80{}\x03garbage")
        relay.end(exchange, response_headers=[("content-encoding", "br")], reply_size=14, is_counted=False)
        relay.digest()
        row = exchange_of(exchange)
        assert (row.end_reason, row.metadata["unread_reply"]) == ("done", "compressed as br")
        assert row.usage["source"] == "estimated"
        assert path_of(sessions()[0]) == ["u:Hello"]

    def test_so_does_one_whose_compression_is_broken(self, relay: Relay) -> None:
        exchange = relay.send(CHAT, QUESTION)
        relay.journal.reply(exchange, b"this is no gzip")
        relay.end(exchange, response_headers=[("content-encoding", "gzip")])
        relay.digest()
        assert exchange_of(exchange).metadata["unread_reply"] == "compressed as gzip"


class TestSideCalls:
    NAMER = "You help with conferences. Create a catchy title for each session that the user describes."

    def test_a_conversation_about_titles_is_a_conversation(self, relay: Relay) -> None:
        talk = Chat(relay)
        talk.body["messages"] = [{"role": "system", "content": self.NAMER}]
        talk.relay_call("Databases, for beginners.", model_answer("Rows and Rows"))
        talk.relay_call("Another one, please.", model_answer("Tables"))
        (session,) = sessions()
        assert path_of(session) == [
            "u:Databases, for beginners.", "a:Rows and Rows", "u:Another one, please.", "a:Tables",
        ]  # fmt: skip

    def test_a_long_question_with_one_word_for_an_answer_is_a_question(self, relay: Relay) -> None:
        asked = "Is this spam? Answer Y or N. " + "mail " * 2_000
        relay.relay_call(
            CHAT, {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": asked}]}, model_answer("Y")
        )
        assert path_of(sessions()[0]) == [f"u:{asked.strip()}", "a:Y"]

    def test_opencode_says_that_it_wants_a_title_in_a_message_of_its_own(self, relay: Relay) -> None:
        told = ["You are a title generator.", "Generate a title for this conversation:", "Plan it."]
        messages = [
            {"role": role, "content": text} for role, text in zip(("system", "user", "user"), told, strict=True)
        ]
        exchange = relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("A plan"))
        assert exchange_of(exchange).metadata["helper"] == "title"
        assert sessions() == []

    def test_what_is_left_out_of_a_side_call_is_said(self, relay: Relay) -> None:
        messages = [{"role": "system", "content": self.NAMER}, {"role": "user", "content": "x" * 5_000}]
        exchange = relay.relay_call(CHAT, {"model": "m", "messages": messages}, model_answer("Rows"))
        told = exchange_of(exchange).metadata
        assert told["asked"] == "x" * 2_000 + " [… 3,000 characters more, not kept]"
        assert told["answered"] == "Rows"


@pytest.mark.parametrize("mode", ["redacted", "metadata"])
@pytest.mark.parametrize("agent", [f"{SECRET}/1", f"my{SECRET}/1", f"my-{SECRET}"])
def test_a_key_in_the_name_of_a_program_is_not_kept(relay: Relay, mode: str, agent: str) -> None:
    in_mode(relay, mode).relay_call(CHAT, QUESTION, model_answer("Hi."), {"user-agent": agent})
    assert Exchange.objects.count() == 1
    assert SECRET[:16] not in everything_stored()


@pytest.mark.parametrize("mode", ["redacted", "no_replies", "metadata"])
class TestAKeyInTheNameOfAModel:
    def test_is_not_kept(self, relay: Relay, mode: str) -> None:
        exchange = in_mode(relay, mode).relay_call(CHAT, QUESTION | {"model": f"gpt-{SECRET}"}, model_answer("Hi."))
        assert SECRET[:16] not in everything_stored()
        assert exchange_of(exchange).model == "gpt-[redacted:openai-key]"

    def test_nor_where_it_stands_in_the_path(self, relay: Relay, mode: str) -> None:
        body = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
        path = f"/v1beta/models/{SECRET}:generateContent"
        exchange = in_mode(relay, mode).relay_call("gemini-generate", body, model_answer("Hi."), path=path)
        assert SECRET[:16] not in everything_stored()
        assert exchange_of(exchange).metadata["path"] == "/v1beta/models/[redacted:openai-key]:generateContent"

    def test_nor_of_the_one_that_answered(self, relay: Relay, mode: str) -> None:
        exchange = in_mode(relay, mode).send(CHAT, QUESTION)
        relay.answer(exchange, model_answer("Hi."), metadata={"model": SECRET})
        relay.digest()
        assert SECRET[:16] not in everything_stored()
        assert exchange_of(exchange).model == "[redacted:openai-key]"


@pytest.mark.parametrize("mode", ["redacted", "no_replies", "metadata"])
def test_nor_is_a_key_in_a_header_that_an_upstream_echoes_or_in_what_could_not_be_carried(
    relay: Relay, mode: str
) -> None:
    exchange = in_mode(relay, mode).send(CHAT, QUESTION)
    echoed = [("x-request-id", f"mine-{SECRET}"), ("x-ratelimit-remaining-tokens", "13800138000")]
    relay.answer(
        exchange, model_answer("Hi."), response_headers=echoed, metadata={"not_carried": f"tool_not_carried:{SECRET}"}
    )
    relay.digest()
    assert SECRET[:16] not in everything_stored()
    told = exchange_of(exchange).metadata
    assert told["headers"] == {
        "x-request-id": "mine-[redacted:openai-key]", "x-ratelimit-remaining-tokens": "13800138000",
    }  # fmt: skip
    assert told["not_carried"] == "tool_not_carried:[redacted:openai-key]"


class TestSeveralAnswers:
    """A caller may ask for more than one (`n`): the first is the path, and the others stand beside it."""

    def choices(self, name: str, *texts: str) -> list[dict[str, Any]]:
        end = {"finish_reason": "stop"}
        return [{"index": index, name: {"content": text}, **end} for index, text in enumerate(texts)]

    def reply(self, *, is_stream: bool) -> bytes:
        if not is_stream:
            return json.dumps({"id": "x", "model": "m", "choices": self.choices("message", "Yes.", "No.")}).encode()
        chunks = [
            *({"choices": [one | {"finish_reason": None}]} for one in self.choices("delta", "Ye", "N")),
            *({"choices": [one]} for one in self.choices("delta", "s.", "o.")),
        ]
        return b"".join(b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks) + b"data: [DONE]\n\n"

    @pytest.mark.parametrize("is_stream", [False, True])
    def test_each_is_kept_and_can_be_gone_on_from(self, relay: Relay, is_stream: bool) -> None:
        body = {**QUESTION, "stream": is_stream, "n": 2}
        exchange = relay.send(CHAT, body)
        relay.journal.reply(exchange, self.reply(is_stream=is_stream))
        relay.end(exchange)
        relay.digest()
        (session,) = sessions()
        assert path_of(session) == ["u:Hello", "a:Yes."]
        row = exchange_of(exchange)
        assert row.metadata["answers"] == 2
        assert row.message is not None
        assert row.message.content == "Yes."
        beside = Message.objects.get(session=session, content="No.")
        assert (beside.on_path, beside.parent_seq, beside.status) == (False, row.message.parent_seq, "complete")
        spoken = [*body["messages"], {"role": "assistant", "content": "No."}, {"role": "user", "content": "Why?"}]
        relay.relay_call(CHAT, {"model": "m", "messages": spoken}, model_answer("So."))
        (session,) = sessions()
        assert path_of(session) == ["u:Hello", "a:No.", "u:Why?", "a:So."]

    @pytest.mark.parametrize("is_stream", [False, True])
    def test_gemini_calls_them_candidates(self, relay: Relay, is_stream: bool) -> None:
        candidates = [
            {"index": index, "content": {"parts": [{"text": text}]}, "finishReason": "STOP"}
            for index, text in enumerate(("Yes.", "No."))
        ]
        chunks: list[Any] = [{"candidates": [one]} for one in candidates] if is_stream else [{"candidates": candidates}]
        body = {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
        exchange = relay.send("gemini-generate", body)
        lines = [json.dumps(chunk) for chunk in chunks]
        relay.journal.reply(exchange, "".join(f"data: {line}\n\n" if is_stream else line for line in lines).encode())
        relay.end(exchange)
        relay.digest()
        (session,) = sessions()
        assert path_of(session) == ["u:Hello", "a:Yes."]
        assert Message.objects.filter(session=session, content="No.", on_path=False).exists()
