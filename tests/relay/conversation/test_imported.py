"""An imported conversation goes on in the chat: with all that was said, and with any vendor."""

from __future__ import annotations

import io

import pytest

from history import importing
from history.db.process_state import process_state
from history.models import Session
from project.accounts.models import User
from relay.providers import registry
from relay.runtime.async_db import in_database
from tests.history.importing.files import (
    claude_code,
    codex_meta,
    codex_said,
    document,
    lines,
    rollout,
    text,
    tool_result,
    tool_use,
)
from tests.history.importing.test_gemini import RECORD, call, message, response
from tests.relay.conftest import Talk
from tests.vendors import Vendors, says
from tests.vendors.setup import NAMES

CODE = lines(
    claude_code("user", "u1", None, "The build is red."),
    claude_code("assistant", "a1", "u1", [tool_use("t1", command="make"), tool_use("t2", command="ls")]),
    claude_code("user", "r1", "a1", [tool_result("t1", "error: typo")]),
    claude_code("assistant", "a2", "gone", [text("A typo, I think.")]),
)
CODEX = lines(
    codex_meta(base_instructions={"text": "You are Codex."}),
    codex_said("user", "Count to two."),
    codex_said("assistant", "One. Two."),
    rollout("compacted", message="They counted to two.", replacement_history=[]),
)


GEMINI = document(
    RECORD
    | {
        "messages": [
            message("m1", "user", "What is in a.txt?"),
            message("m2", "gemini", "I look.", toolCalls=[call(result=[response("a typo")])], model="gemini-2.5-pro"),
            message("m3", "gemini", "It says so.", model="gemini-2.5-pro"),
        ]
    }
)
THOUGHT = rollout("response_item", type="reasoning", id="rs_1", summary=[], encrypted_content="gAAA-signed")
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "gAAA-signed"}
SIGNED = {
    "openai-responses": lines(codex_meta(), codex_said("user", "Count."), THOUGHT, codex_said("assistant", "One.")),
    "anthropic-messages": lines(
        claude_code("user", "u1", None, "Count."), claude_code("assistant", "a1", "u1", [THINKING, text("One.")])
    ),
}


def bring(owner: User, content: bytes) -> Session:
    piece = importing.UnpackedFile(
        name="file.jsonl", open=lambda: io.BytesIO(content), size=len(content), is_named=True
    )
    importing.Import(owner).run([piece])
    return Session.objects.get()


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-responses", "openai-chat", "gemini-generate"])
async def test_each_vendor_takes_what_was_imported_and_answers(
    talk: Talk, ada: User, vendors: Vendors, providers: registry.Router, dialect: str
) -> None:
    talk.session = await in_database(bring, ada, CODE)
    process_state.set(providers)
    vendors.plays(dialect, says("Fixed."))
    name = {"openai-responses": "openai", "openai-chat": "openai-chat"}.get(dialect, dialect.partition("-")[0])
    await talk.send("Fix it.", model=f"{name}/model")
    await talk.until_ended()
    assert (await talk.texts())[-2:] == [("user", "Fix it."), ("assistant", "Fixed.")]
    assert vendors.requests[-1].problem is None
    told = str(vendors.requests[-1].body)
    for words in ("The build is red.", "error: typo", "A typo, I think.", "Fix it."):
        assert words in told, words


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-responses"])
async def test_a_recording_of_gemini_cli_goes_on_elsewhere(
    talk: Talk, ada: User, vendors: Vendors, providers: registry.Router, dialect: str
) -> None:
    talk.session = await in_database(bring, ada, GEMINI)
    process_state.set(providers)
    await talk.send("And b.txt?", model=f"{NAMES[dialect]}/model")
    await talk.until_ended()
    assert vendors.requests[-1].problem is None
    told = str(vendors.requests[-1].body)
    for words in ("What is in a.txt?", "read_file", "a typo", "It says so.", "And b.txt?"):
        assert words in told, words


@pytest.mark.parametrize("dialect", SIGNED)
async def test_content_signed_for_another_account_is_not_sent(
    talk: Talk, ada: User, vendors: Vendors, providers: registry.Router, dialect: str
) -> None:
    talk.session = await in_database(bring, ada, SIGNED[dialect])
    process_state.set(providers)
    await talk.send("And two?", model=f"{NAMES[dialect]}/model")
    await talk.until_ended()
    assert vendors.requests[-1].problem is None
    assert "One." in str(vendors.requests[-1].body)
    assert "gAAA-signed" not in str(vendors.requests[-1].body)
    assert "gAAA-signed" in str(await talk.entries())


async def test_the_model_is_told_the_summary_and_people_see_everything(talk: Talk, ada: User) -> None:
    talk.session = await in_database(bring, ada, CODEX)
    provider = talk.scripted("Three.")
    await talk.send("Go on.")
    await talk.until_ended()
    told = "\n".join(entry.content for entry in provider.calls[0].context.entries)
    assert "They counted to two." in told
    assert "One. Two." not in told
    assert ("assistant", "One. Two.") in await talk.texts()
    assert await talk.head() > 4
