"""What a program said through the relay goes on in the chat, or is forked at any message, with any vendor."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.test import AsyncClient, Client

from history.access import keys
from history.context.values import Context, ContextEntry, Role
from history.db.process_state import process_state
from history.dialects import DIALECTS
from history.entries import Media, Text
from history.models import Session
from history.record import recorder
from project.accounts.models import User
from relay import conversation
from relay.providers.base import Model, without_unsupported_images
from relay.providers.registry import Router
from relay.runtime.async_db import in_database
from tests.factories import create_chat, model_input as wrote, model_output
from tests.relay.conftest import Talk
from tests.relay.digest.programs import Chat, ClaudeCode, Codex, GeminiCli, Program
from tests.relay.digest.relayed import Relay, call, model_answer, path_of
from tests.vendors import Vendors, says
from tests.vendors.setup import NAMES

# What vendors are told is rendered from values.
pytestmark = pytest.mark.any_database

PROGRAMS = [ClaudeCode, Codex, GeminiCli, Chat]
WORDS = ("Fix the parser.", "I look first.", "def parse(): ...", "It is fixed.", "And the tests?", "Go on.")
INSTRUCTION = "You are an agent of this team."
# What the programs tell their models to be, in their first instruction or in the middle of the conversation.
THEIRS = ("You are a coding agent", "You are a Claude agent", "You are an interactive agent")
# What only the vendor who signed it may see again, in the requests of our programs.
SIGNED = {"anthropic-messages": '"s1"', "openai-responses": '"secret"', "gemini-generate": '"c2ln"'}


def model(dialect: str) -> str:
    return f"{NAMES.get(dialect, dialect)}/model"


def recorded(kind: type[Program], folder: Path, owner: User) -> tuple[Session, Program]:
    """A program asked, used a tool of its own, and went away in the middle of another call."""
    key = keys.create(name="laptop", owner=owner, recording="full").api_key
    program = kind(Relay(folder / "journal", key))
    program.relay_call("Fix the parser.", model_answer("I look first.", call("read_file", "c1", path="p.py")))
    program.find(c1="def parse(): ...")
    program.relay_call("", model_answer("It is fixed."))
    program.relay_call("And the tests?", model_answer("", call("run_shell", "c9", command="make test")))
    return Session.objects.get(), program


def offered(body: Any) -> list[str]:
    """The names of the tools in a request of any vendor."""
    tools = [one for tool in body.get("tools", ()) for one in tool.get("functionDeclarations", [tool])]
    return [tool.get("name") or tool["function"]["name"] for tool in tools]


@pytest.mark.parametrize("kind", PROGRAMS)
async def test_a_recorded_session_is_forked_and_goes_on_with_every_vendor(
    kind: type[Program], talk: Talk, ada: User, vendors: Vendors, providers: Router, tmp_path: Path
) -> None:
    original, program = await in_database(recorded, kind, tmp_path, ada)
    await talk.agent(instruction=INSTRUCTION, tools=["current_time"])
    process_state.set(providers)
    for dialect in DIALECTS:
        vendors.plays(dialect, says(f"Here by {dialect}."))
        talk.session = await conversation.fork(ada, original)
        await talk.send("Go on.", model=model(dialect))
        await talk.until_ended()
        seen = vendors.requests[-1]
        assert (seen.dialect, seen.problem) == (dialect, None)
        told = json.dumps(seen.body)
        assert [words for words in (*WORDS, INSTRUCTION) if words not in told] == []
        assert [words for words in THEIRS if words in told] == []
        assert offered(seen.body) == ["current_time"]
        if dialect != program.dialect:
            assert SIGNED.get(program.dialect, "\0") not in told
        assert (await talk.texts())[-1] == ("assistant", f"Here by {dialect}.")
    before, _ = original.version, await in_database(original.refresh_from_db)
    assert original.version == before


@pytest.mark.parametrize("kind", [ClaudeCode, Chat])
async def test_it_goes_on_in_place_and_the_program_goes_on_where_it_was(
    kind: type[Program], talk: Talk, ada: User, tmp_path: Path
) -> None:
    talk.session, program = await in_database(recorded, kind, tmp_path, ada)
    copy = await conversation.fork(ada, talk.session)
    fixed = next(message for message in await talk.messages() if message.content == "It is fixed.")
    await conversation.rollback(ada, talk.session, to=fixed.seq)
    talk.scripted("They pass here.")
    await talk.send("Go on.")
    await talk.until_ended()
    here = await talk.head()
    await in_database(program.find, c9="2 passed")
    await in_database(program.relay_call, "", model_answer("They pass there."))
    there = await in_database(path_of, talk.session)
    assert there[-1] == "a:They pass there."
    assert not any("They pass here." in line for line in there)
    assert (await talk.texts(leaf=here))[-1] == ("assistant", "They pass here.")
    version, _ = copy.version, await in_database(copy.refresh_from_db)
    assert copy.version == version
    assert await in_database(Session.objects.count) == 2


async def test_an_answer_asked_for_again_and_one_continued_are_our_agents(
    talk: Talk, ada: User, tmp_path: Path
) -> None:
    talk.session, _ = await in_database(recorded, ClaudeCode, tmp_path, ada)
    await talk.agent(instruction=INSTRUCTION, tools=["current_time"])
    provider = talk.scripted("I was interrupted.", "It was a typo.")
    await conversation.continue_(ada, talk.session)
    await talk.until_ended()
    fixed = next(message for message in await talk.messages() if message.content == "It is fixed.")
    await conversation.regenerate(ada, talk.session, seq=fixed.seq)
    await talk.until_ended()
    for made in provider.calls:
        assert made.context.system == INSTRUCTION
        assert [tool.name for tool in made.context.tools] == ["current_time"]
    assert (await talk.texts())[-1] == ("assistant", "It was a typo.")


async def test_an_agent_without_an_instruction_does_not_follow_a_programs_either(talk: Talk, ada: User) -> None:
    theirs = wrote("You are a pirate from now on.", channel="system")
    talk.session = await in_database(lambda: create_chat(ada, "Hello?", "Hello.", source=Session.Source.IMPORT))
    await in_database(lambda: recorder.append_many(talk.session, [theirs, wrote("Hm?"), model_output("Arr.")], after=2))
    await talk.agent(instruction="")
    provider = talk.scripted("Good day.", "Good night.")
    for text in ("And now?", "And then?"):
        await talk.send(text)
        await talk.until_ended()
    for made in provider.calls:
        assert "pirate" not in made.context.system + str([entry.content for entry in made.context.entries])
    assert (await talk.kinds()).count("system_instruction_set") == 1, "said once, when it takes over"


async def test_a_long_session_fits_into_a_small_window(talk: Talk, ada: User) -> None:
    def long() -> Session:
        session = create_chat(ada, source=Session.Source.IMPORT)
        turns = [
            turn for n in range(40) for turn in (wrote(f"Question {n}: " + "why " * 200), model_output("So. " * 200))
        ]
        recorder.append_many(session, turns, after=0)
        return session

    talk.session = await in_database(long)
    provider = talk.scripted("Because.", models=(Model(name="small", window=4_000),))
    await talk.send("And now?")
    await talk.until_ended()
    context = provider.calls[-1].context  # those before it may be about a summary
    assert 0 < context.tokens <= 4_000
    assert context.entries[-1].content == "And now?"


def test_a_model_that_sees_nothing_is_told_the_names_of_pictures() -> None:
    picture = Media(media_type="image/png", sha256="a" * 64, name="plan.png")
    entry = ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text="Look."), picture))
    context = Context(entries=(entry,))
    assert without_unsupported_images(context, Model(name="sees")) is context
    [blind] = without_unsupported_images(context, Model(name="blind", takes_images=False)).entries
    assert "[A picture that this model cannot see: plan.png]" in blind.content
    assert not any(isinstance(part, Media) for part in blind.parts)


async def test_a_session_is_forked_at_any_message_without_a_socket(talk: Talk, ada: User, bob: User) -> None:
    session = await in_database(create_chat, ada, "One?", "Two.", "Three?", "Four.", source=Session.Source.RELAY)
    client = AsyncClient()
    await client.aforce_login(ada)
    response = await client.post(f"/s/{session.pk}/2/fork/")
    copy = await in_database(Session.objects.get, forked_from=session)
    assert response["Location"] == copy.get_absolute_url()
    talk.session = copy
    assert await talk.texts() == [("user", "One?"), ("assistant", "Two.")]
    assert (await client.post(f"/s/{session.pk}/99/fork/")).status_code == 404
    await client.aforce_login(bob)
    assert (await client.post(f"/s/{session.pk}/2/fork/")).status_code == 404


@pytest.mark.django_db
def test_the_page_says_where_it_was_recorded_and_offers_both_ways(client: Client, ada: User) -> None:
    client.force_login(ada)
    relayed = create_chat(ada, "One?", "Two.", source=Session.Source.RELAY, client="Claude Code")
    page = client.get(relayed.get_absolute_url()).content.decode()
    assert "Recorded from Claude Code" in page
    assert f"/s/{relayed.pk}/2/fork/" in page
    own = create_chat(ada, *(f"Word {n}." for n in range(200)))
    page = client.get(own.get_absolute_url()).content.decode()
    assert "Recorded from" not in page
    middle = client.get(f"{own.get_absolute_url()}?at=50").content.decode()
    assert f"/s/{own.pk}/50/fork/" in middle
