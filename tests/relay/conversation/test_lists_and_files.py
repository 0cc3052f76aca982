"""A conversation that is being answered, from the list beside it; and files on their way to a model."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from html import unescape
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connections
from django.test import AsyncClient

from history.entries import Media, Text
from history.models import Exchange, Message, Session
from relay import conversation
from relay.errors import AttachmentRefused
from relay.models import QueuedMessage, Run
from relay.runtime.async_db import in_database
from tests.relay.conftest import Talk

PNG = b"\x89PNG\r\n\x1a\n and so on"


@pytest.fixture
async def client(talk: Talk) -> AsyncIterator[AsyncClient]:
    client = AsyncClient()
    await client.aforce_login(talk.user)
    yield client
    await sync_to_async(connections.close_all)()  # those of the thread in which the views ran


async def notes_of(client: AsyncClient, *files: tuple[str, bytes]) -> list[str]:
    sent = {"file": [SimpleUploadedFile(name, content) for name, content in files]}
    html = (await client.post("/attachments/", sent)).content.decode()
    return [unescape(note) for note in re.findall(r'name="attachment" value="([^"]*)"', html)]


# The list.


async def test_sent_deleted_at_once_and_brought_back_the_chat_opens_with_what_there_was(
    talk: Talk, client: AsyncClient
) -> None:
    talk.scripted(["The beginning", asyncio.Event()])
    session = await talk.begin("Is it slow?")
    await talk.until(lambda: Exchange.objects.exists())
    assert (await client.post(f"/s/{session.pk}/delete/")).status_code == 302
    run = await talk.until_ended()
    assert run.outcome == Run.Outcome.STOPPED
    assert (await client.get(f"/s/{session.pk}/")).status_code == 404
    assert (await client.get("/")).status_code == 200
    assert (await client.post(f"/s/{session.pk}/undelete/")).status_code == 302
    html = (await client.get(f"/s/{session.pk}/")).content.decode()
    assert "Is it slow?" in html
    assert "The beginning" in html


async def test_while_it_is_answered_the_list_says_so_and_afterwards_no_more(talk: Talk, client: AsyncClient) -> None:
    gate = asyncio.Event()
    talk.scripted(["The beginning", gate])
    await talk.begin()
    await talk.until(lambda: Exchange.objects.exists())
    asked: dict[str, Any] = {"headers": {"HX-Request": "true"}}
    assert "sidebar-answering" in (await client.get("/rail/", **asked)).content.decode()
    gate.set()
    await talk.until_ended()
    assert "sidebar-answering" not in (await client.get("/rail/", **asked)).content.decode()


# Files.


async def test_a_file_goes_from_the_form_to_the_model_and_back_to_its_reader(talk: Talk, client: AsyncClient) -> None:
    provider = talk.scripted("A cat.")
    notes = await notes_of(client, ("cat.png", PNG), ("notes.md", b"# Cats"))
    session = await talk.begin("What is this?", attachments=notes)
    await talk.until_ended()
    (told,) = [entry for entry in provider.calls[-1].context.entries if entry.content == "What is this?"]
    assert [(part.name, part.media_type) for part in told.parts if isinstance(part, Media)] == [
        ("cat.png", "image/png"),
        ("notes.md", "text/markdown"),
    ]
    picture = next(part for part in told.parts if isinstance(part, Media))
    html = (await client.get(f"/s/{session.pk}/")).content.decode()
    assert f'src="/attachments/{session.pk}/{picture.sha256}"' in html
    assert (await client.get(f"/attachments/{session.pk}/{picture.sha256}")).content == PNG


async def test_a_file_alone_is_a_message(talk: Talk, client: AsyncClient) -> None:
    talk.scripted("A cat.")
    await talk.begin("", attachments=await notes_of(client, ("cat.png", PNG)))
    await talk.until_ended()
    entries = [entry for entry in await talk.entries() if entry.kind == "model_input"]
    assert [part.type for part in entries[-1].parts] == [Media.type]
    assert not any(isinstance(part, Text) for part in entries[-1].parts)


async def test_a_forged_attachment_stores_nothing(talk: Talk) -> None:
    talk.scripted("A cat.")
    with pytest.raises(AttachmentRefused):
        await talk.begin("What is this?", attachments=["forged"])
    assert await in_database(Message.objects.count) == 0
    assert await in_database(Session.objects.count) == 0


async def test_a_forged_attachment_does_not_wait_in_the_queue(talk: Talk) -> None:
    talk.scripted(["First", asyncio.Event()])
    session = await talk.begin("one")
    await talk.until(lambda: Exchange.objects.exists())
    draft = conversation.MessageDraft(text="two", attachments=["forged"])
    with pytest.raises(AttachmentRefused):
        await conversation.send(talk.user, session, draft, conversation.ViewerPosition(after=await talk.head()))
    assert await in_database(QueuedMessage.objects.count) == 0
