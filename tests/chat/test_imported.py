"""An imported conversation goes on in the chat: with all that was said, and with any vendor."""

from __future__ import annotations

import io

import pytest

from history import importing
from history.models import Session
from project.accounts.models import User
from relay.database import in_database
from relay.providers import registry
from tests.chat.conftest import Talk
from tests.importing.files import claude_code, codex_meta, codex_said, lines, rollout, text, tool_result, tool_use
from tests.vendors import Vendors, says

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


def bring(owner: User, content: bytes) -> Session:
    piece = importing.Piece(name="file.jsonl", open=lambda: io.BytesIO(content), size=len(content), is_named=True)
    importing.run(owner, [piece])
    return Session.objects.get()


@pytest.mark.parametrize("dialect", ["anthropic-messages", "openai-responses", "openai-chat", "gemini-generate"])
async def test_each_vendor_takes_what_was_imported_and_answers(
    talk: Talk,
    ada: User,
    vendors: Vendors,
    providers: registry.Router,
    dialect: str,
) -> None:
    talk.session = await in_database(bring, ada, CODE)
    registry.use(providers)
    vendors.plays(dialect, says("Fixed."))
    name = {"openai-responses": "openai", "openai-chat": "openai-chat"}.get(dialect, dialect.partition("-")[0])
    await talk.send("Fix it.", model=f"{name}/model")
    await talk.until_ended()
    assert (await talk.said())[-2:] == [("user", "Fix it."), ("assistant", "Fixed.")]
    assert vendors.requests[-1].problem is None
    told = str(vendors.requests[-1].body)
    for words in ("The build is red.", "error: typo", "A typo, I think.", "Fix it."):
        assert words in told, words


async def test_the_model_is_told_the_summary_and_people_see_everything(talk: Talk, ada: User) -> None:
    talk.session = await in_database(bring, ada, CODEX)
    provider = talk.scripted("Three.")
    await talk.send("Go on.")
    await talk.until_ended()
    told = "\n".join(entry.content for entry in provider.calls[0].context.entries)
    assert "They counted to two." in told
    assert "One. Two." not in told
    assert ("assistant", "One. Two.") in await talk.said()
    assert await talk.head() > 4
