"""Text files are redacted wherever they come from: with a key that records so, and by the operator's own hooks."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from django.test import override_settings

from history.access import keys
from history.entries import Media, ModelInput, Text, ToolResult, ToolResults
from history.formats.base import Conversation, SourceNode
from history.importing.storing import ConversationStore
from history.models import Blob, Message, Session
from history.record import recorder
from history.record.selectors import entries_of
from tests.factories import model_input

pytestmark = pytest.mark.django_db

SECRET = "sk-ant-api03-" + "a1B2" * 24
FILE = f"ANTHROPIC_API_KEY={SECRET}\n".encode()
HERE = "tests.history.redaction.test_redacted_files"


def without_nemo(text: str) -> str:
    return text.replace("Nemo", "[name]")


def named(content: bytes) -> ModelInput:
    media = Media(media_type="text/plain", sha256=sha256(content).hexdigest(), size=len(content), name=".env")
    return ModelInput(parts=(Text(text="Read this."), media))


def file_of(session: Session) -> bytes:
    (entry,) = entries_of(list(Message.objects.filter(session=session, kind="model_input")))
    assert isinstance(entry, ModelInput)
    media = entry.parts[1]
    assert isinstance(media, Media)
    content = bytes(Blob.objects.get(pk=media.sha256).data)
    assert (media.size, media.name) == (len(content), ".env")
    return content


def test_an_import_under_a_key_never_stores_the_file_as_it_was(ada: Any) -> None:
    key = keys.create(name="import", owner=ada, recording="redacted").api_key
    talk = Conversation(
        source_id="c1",
        client="Claude Code",
        nodes=(SourceNode(source_id="n1", parent=None, entry=named(FILE)),),
        blobs={sha256(FILE).hexdigest(): FILE},
    )
    for _ in ConversationStore(ada, key).store(talk):
        pass
    assert file_of(Session.objects.get()) == b"ANTHROPIC_API_KEY=[redacted:anthropic-key]\n"
    assert Blob.objects.count() == 1


def test_a_file_that_was_attached_before_is_redacted_when_it_is_sent(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    with override_settings(PARLEY_REDACTION_HOOKS=[f"{HERE}.without_nemo"]):
        recorder.store_blob(b"Captain Nemo", media_type="text/plain")
        recorder.append(session, named(b"Captain Nemo"), after=0)
    assert file_of(session) == b"Captain [name]"


def test_what_a_tool_found_is_redacted_in_its_files_too(ada: Any) -> None:
    key = keys.create(name="tools", owner=ada, recording="redacted").api_key
    session = recorder.start_session(owner=ada, api_key=key, source="relay")
    recorder.store_blob(FILE, media_type="text/plain")
    result = ToolResult(call_id="c1", name="read", parts=named(FILE).parts)
    recorder.append_many(session, [model_input("Look."), ToolResults(results=(result,))], after=0)
    linked = Blob.objects.filter(messages__session=session)
    assert [SECRET.encode() in bytes(blob.data) for blob in linked] == [False]
