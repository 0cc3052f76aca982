"""What is kept of a relayed call is what its key allows: no more, and no less without a word about it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.apps import apps

from history import keys
from history.models import Blob, Message
from history.verification import verify
from tests.digest.relayed import Relay, path_of, said, sessions

pytestmark = pytest.mark.django_db

CHAT, ANTHROPIC = "openai-chat", "anthropic-messages"
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
        in_mode(relay, "redacted").ask(ANTHROPIC, reading(file), said("It is a key."))
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
        relay.ask(ANTHROPIC, body, said("It is a key."))
        body["messages"] += [{"role": "assistant", "content": "It is a key."}, {"role": "user", "content": "Sure?"}]
        relay.ask(ANTHROPIC, body, said("Yes."))
        (session,) = sessions()
        assert path_of(session) == ["u:Read this.", "a:It is a key.", "u:Sure?", "a:Yes."]
        assert list(verify(sessions=[session])) == []

    def test_binary_files_and_those_without_a_find_are_kept_as_they_are(self, relay: Relay) -> None:
        picture, plain = b"\x89PNG\r\n\x1a\n" + bytes(20), b"Nothing to hide."
        image = document("image/png", picture) | {"type": "image"}
        in_mode(relay, "redacted").ask(ANTHROPIC, reading(image, document("text/plain", plain)), said("Nice."))
        kept = {bytes(blob.data): blob.media_type for blob in Blob.objects.all()}
        assert kept == {picture: "image/png", plain: "text/plain"}

    def test_in_mode_full_a_file_is_kept_as_it_came(self, relay: Relay) -> None:
        relay.ask(ANTHROPIC, reading(document("text/plain", SECRET)), said("It is a key."))
        assert bytes(Blob.objects.get().data) == SECRET.encode()
