"""A session that was exported, wiped and restored goes on in the chat: people and the model see all of it."""

from __future__ import annotations

from history import verification
from history.models import Session
from relay.runtime.async_db import in_database
from tests.history.formats.exported import everything, restored, wipe
from tests.relay.conftest import Talk


async def test_a_restored_session_goes_on_with_its_full_context(talk: Talk) -> None:
    provider = talk.scripted("Tea, of course.", "Still tea.")
    await talk.begin("What does Ada drink?")
    await talk.until_ended()
    file = await in_database(everything)
    await in_database(wipe)
    await in_database(restored, file)
    talk.session = await in_database(Session.objects.get, pk=talk.session.pk)
    await talk.send("And now?")
    await talk.until_ended()
    assert await talk.texts() == [
        ("user", "What does Ada drink?"),
        ("assistant", "Tea, of course."),
        ("user", "And now?"),
        ("assistant", "Still tea."),
    ]
    told = [entry.content for entry in provider.calls[-1].context.entries]
    assert told[-3:] == ["What does Ada drink?", "Tea, of course.", "And now?"]
    assert await in_database(lambda: list(verification.verify())) == []
