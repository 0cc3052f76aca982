"""What a compression leaves in the database: on each of them the same is read back, by another process too."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from hashlib import sha256
from typing import Any

import pytest
from django.conf import settings
from django.db import connection, connections
from django.test.utils import CaptureQueriesContext

from history.entries import Retracted, Summary
from history.models import Exchange, Session
from history.record import recorder, selectors
from relay import conversation
from relay.conversation import NotPossible
from relay.providers.base import Model
from relay.runtime.async_db import in_database
from tests.clients import ApiClient
from tests.factories import context_to_bytes
from tests.relay.agents.compression_helpers import (
    SMALL,
    SUMMARY,
    call,
    compress_and_wait,
    context_text,
    contexts_sent,
    create_conversation,
    scripted_model,
    send_questions,
    summaries,
)
from tests.relay.conftest import Talk
from tests.servers.processes import ROOT, clean_environment, database_url


async def test_a_person_asks_with_a_command_and_less_is_told_from_then_on(talk: Talk) -> None:
    provider = talk.scripted(scripted_model())
    await create_conversation(talk, 4)
    await talk.send("/compress")
    await talk.until_ended()
    (summary,) = await summaries(talk)
    assert (summary.metadata["messages"], summary.metadata["why"]) == (4, "asked")
    await send_questions(talk, 1, first=5)
    assert context_text(contexts_sent(provider)[-1]).count("Question") == 3
    record = contexts_sent(provider, summaries=True)[0]
    assert record.tools == ()
    assert "Question 2?" in context_text(record)


async def test_a_summary_written_meanwhile_counts_from_the_next_step(talk: Talk) -> None:
    """S1.17, S1.25, S1.26: by place on the path, not by length."""
    await talk.agent(tools=["current_time"])
    gate = asyncio.Event()
    answers: Any = iter([["Wait. ", gate, call("current_time", "c1")], "Done."])
    provider = talk.scripted(scripted_model(lambda context, options: next(answers)))
    await create_conversation(talk, 2)
    await talk.send("Question 3?")
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    head = await talk.head()
    entry = Summary(first=1, last=head - 1, summary="Two questions were answered.")
    await in_database(lambda: recorder.append(Session.objects.get(pk=talk.session.pk), entry, after=head))
    gate.set()
    await talk.until_ended()
    assert (await talk.kinds())[-5:] == ["model_input", "summary", "model_output", "tool_results", "model_output"]
    assert "Question 1?" in context_text(contexts_sent(provider)[0])
    last = context_text(contexts_sent(provider)[1])
    assert last.count("Two questions were answered.") == 1
    assert "Question 1?" not in last
    assert "Question 3?" in last


async def test_a_retraction_that_came_meanwhile_counts_too(talk: Talk) -> None:
    await talk.agent(tools=["current_time"])
    gate = asyncio.Event()
    answers: Any = iter([[gate, call("current_time", "c1")], "Done."])
    provider = talk.scripted(scripted_model(lambda context, options: next(answers)))
    await create_conversation(talk, 3)
    await talk.send("/compress")
    await talk.until_ended()
    seq = await talk.head()
    await talk.send("Question 4?")
    await talk.until(lambda: Exchange.objects.filter(ended_at=None).exists())
    await conversation.undo_summary(talk.user, talk.session, seq=seq)
    gate.set()
    await talk.until_ended()
    assert "Question 1?" not in context_text(contexts_sent(provider)[0])
    assert "Question 1?" in context_text(contexts_sent(provider)[1])
    with pytest.raises(NotPossible, match="already undone"):
        await conversation.undo_summary(talk.user, talk.session, seq=seq)


async def test_a_summary_is_written_anew_by_another_model_and_takes_the_place_of_the_first(talk: Talk) -> None:
    models = (Model(name="script", window=8192), Model(name="other", window=8192))
    summary = lambda context, options: f"{SUMMARY} By {options.model}."  # noqa: E731
    provider = talk.scripted(scripted_model(summary=summary), models=models)
    await create_conversation(talk, 4)
    await talk.send("/compress")
    await talk.until_ended()
    first = await talk.head()
    await conversation.compress(talk.user, talk.session, model="scripted/other", instead_of=first)
    await talk.until_ended()
    entries = await talk.entries()
    assert [type(entry) for entry in entries[-3:]] == [Summary, Retracted, Summary]
    assert (entries[-1].first, entries[-1].last) == (entries[-3].first, entries[-3].last)
    assert (entries[-1].model, entries[-2].seq) == ("other", first)
    await send_questions(talk, 1, first=5)
    assert "By other." in context_text(contexts_sent(provider)[-1])
    assert "By script." not in context_text(contexts_sent(provider)[-1])


async def test_the_compressed_context_is_the_same_byte_for_byte_after_a_restart(talk: Talk) -> None:
    """A process that knows nothing but the database makes the same call as the one that is gone."""
    await talk.agent(tools=["current_time"])
    provider = talk.scripted(scripted_model(), models=SMALL)
    await create_conversation(talk, 8)
    await send_questions(talk, 1, first=9)
    assert await summaries(talk)
    made = await in_database(lambda: Exchange.objects.get(message__isnull=False))
    sent = contexts_sent(provider)[-1]
    assert "To answer {n} questions" in context_text(sent)
    assert await asyncio.to_thread(_told_elsewhere, made) == sha256(context_to_bytes(sent)).hexdigest()


def _told_elsewhere(made: Exchange) -> str:
    """What another process would tell a model that is to answer the same entry."""
    return subprocess.run(
        [sys.executable, "-m", "tests.relay.live.context_hash", str(made.session_id), str(made.after)],
        cwd=ROOT,
        env=clean_environment(DATABASE_URL=database_url(), PARLEY_DATA_DIR=str(settings.PARLEY_DATA_DIR)),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.strip()


async def test_to_summarise_again_reads_only_what_the_summary_stands_for(talk: Talk) -> None:
    talk.scripted(scripted_model())
    await create_conversation(talk, 30)
    entry = Summary(first=21, last=40, summary="Ten questions were answered.")
    await in_database(lambda: recorder.append(Session.objects.get(pk=talk.session.pk), entry, after=60))
    read = await in_database(_read_for_again, talk, 61)
    assert read == [*range(21, 41), 61], "and the summary itself"
    await conversation.compress(talk.user, talk.session, instead_of=61)
    await talk.until_ended()
    *_, gone, new = await talk.entries()
    assert (gone.seq, new.first, new.last, new.metadata["messages"]) == (61, 21, 40, 20)


def _read_for_again(talk: Talk, summary: int) -> list[int]:
    with CaptureQueriesContext(connection) as queries:
        behind = selectors.snapshot_behind(talk.session, summary, leaf=summary)
    assert len(queries) < 6
    return [node.seq for node in behind.nodes if node.seq <= summary]


async def test_a_summary_stays_where_a_model_that_is_to_write_it_anew_does_not(talk: Talk) -> None:
    models = (Model(name="script", window=2_000), Model(name="mute", window=2_000))
    talk.scripted(
        scripted_model(summary=lambda context, options: SUMMARY if options.model == "script" else ""), models=models
    )
    await create_conversation(talk, 8)
    first = await compress_and_wait(talk)
    await conversation.compress(talk.user, talk.session, model="scripted/mute", instead_of=first)
    await talk.until_ended()
    good, note = await summaries(talk)
    assert (note.first, note.metadata["problem"]) == (0, "empty")
    assert good.summary == SUMMARY
    assert "retracted" not in await talk.kinds()


async def test_every_question_of_the_summariser_is_written_down_as_a_call(talk: Talk) -> None:
    talk.scripted(scripted_model())
    await create_conversation(talk, 4)
    await talk.send("/compress")
    await talk.until_ended()
    made = await in_database(lambda: Exchange.objects.filter(metadata__role="summariser").get())
    assert (made.end_reason, made.message_id, made.model) == ("done", None, "script")


async def rest(talk: Talk, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """As its owner, signed in."""
    address = f"/sessions/{talk.session.pk}/summaries{path}"
    asked = await in_database(lambda: ApiClient(talk.user))
    response = await asyncio.to_thread(_with_its_own_connection, asked, method, address, body)
    return response.status_code, response.json() if response.content else None


def _with_its_own_connection(asked: ApiClient, method: str, address: str, body: Any) -> Any:
    try:
        return asked.call(method, address, body)
    finally:
        connections.close_all()


async def test_a_program_has_older_messages_summarised_and_takes_it_back_by_rest(talk: Talk) -> None:
    talk.scripted(scripted_model())
    await create_conversation(talk, 4)
    status, done = await rest(talk, "POST", "", {})
    head = await talk.head()
    assert (status, done) == (200, {"summaries": [head], "is_waiting": False})
    assert (await summaries(talk))[0].metadata["messages"] == 4
    assert await rest(talk, "POST", "", {"model": "unknown/model"}) == (200, {"summaries": [], "is_waiting": False})
    assert (await rest(talk, "DELETE", f"/{head}"))[0] == 204
    assert (await talk.kinds())[-1] == "retracted"
    assert (await rest(talk, "DELETE", f"/{head}"))[0] == 409
    assert (await rest(talk, "DELETE", "/99"))[0] == (await rest(talk, "DELETE", "/1"))[0] == 404
    assert (await rest(talk, "POST", "", {"model": "unknown/model"}))[0] == 400
    assert (await rest(talk, "POST", "", {"modle": "x"}))[0] == 400
