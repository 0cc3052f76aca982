"""Each entry of a conversation that a client resends whole is in the record once."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from history.models import ApiKey, Exchange, Message, Session
from tests.factories import example_count
from tests.relay.digest.programs import Chat, ClaudeCode, Codex, GeminiCli, Program
from tests.relay.digest.relayed import Relay, call, model_answer, path_of, remove_everything

pytestmark = pytest.mark.django_db

# One turn: what goes wrong before it is answered, whether it asks for a tool, and what happens to the digester.
turns = st.lists(
    st.tuples(
        st.sampled_from(["", "error", "cut", "gone"]),
        st.integers(0, 2),
        st.booleans(),
        st.sampled_from(["digest", "later", "reborn"]),
    ),
    min_size=1,
    max_size=5,
)


def talk_through(talk: Program, relay: Relay, plan: list[tuple[str, int, bool, str]]) -> list[str]:
    """Act it out; what a reader has to find on the path."""
    told: list[str] = []
    for number, (trouble, retries, with_tool, then) in enumerate(plan):
        told.append(f"u:Question {number}")
        talk.add_user_text(f"Question {number}")
        for attempt in range(retries if trouble else 0):
            exchange = talk.send(headers={"x-stainless-retry-count": str(attempt)})
            talk.turns -= 1
            if trouble == "error":
                relay.fail(exchange, 500, b'{"error": {"message": "broken"}}')
            else:
                relay.end(exchange, "upstream_cut" if trouble == "cut" else "client_gone", status=0)
        tried = {"x-stainless-retry-count": str(retries if trouble else 0)}
        if with_tool:
            asked = model_answer(f"I look {number}.", call("read_file", f"c{number}", path=f"{number}.py"))
            relay.answer(talk.send(headers=tried), asked)
            talk.add_answer(asked)
            talk.find(**{f"c{number}": f"Result {number}"})
            told += [f"a:I look {number}.", f"t:Result {number}"]
            tried = {}
        answer = model_answer(f"Answer {number}.")
        relay.answer(talk.send(headers=tried), answer)
        talk.add_answer(answer)
        told.append(f"a:Answer {number}.")
        if then != "later":
            relay.digest()
        if then == "reborn":
            relay.digester = type(relay.digester)(relay.folder, name="test", end_wait=0)
    relay.digest()
    return told


@pytest.mark.parametrize("program", [Chat, ClaudeCode, Codex, GeminiCli])
@given(plan=turns)
@settings(max_examples=example_count(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_growing_conversation_is_stored_once_with_any_retries(
    program: type[Program], plan: list[tuple[str, int, bool, str]], key: ApiKey
) -> None:
    remove_everything()
    with TemporaryDirectory() as place:
        relay = Relay(Path(place), key)
        told = talk_through(program(relay), relay, plan)
        (session,) = Session.objects.all()
        spoken = [line for line in path_of(session) if "<environment_context>" not in line and "【错误】" not in line]
        # Gemini CLI puts its own context before the first words.
        assert [line.replace(line[2:], line[2:].split("\n")[-1]) for line in spoken] == told
        inputs = Message.objects.filter(kind="model_input", is_internal=False, content__contains="Question")
        assert inputs.count() == len(plan)
        assert Message.objects.filter(kind="tool_results").count() == sum(with_tool for _, _, with_tool, _ in plan)
        assert not Exchange.objects.filter(ended_at=None).exists()
        relay.journal.close()


# Each request: whether it resends the shorter or the longer beginning, and what is said after it.
walks = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3)), min_size=4, max_size=9)


@given(walk=walks, is_late=st.booleans())
@settings(max_examples=example_count(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_every_call_is_stored_when_a_client_changes_branches(
    walk: list[tuple[int, int]], is_late: bool, key: ApiKey
) -> None:
    remove_everything()
    with TemporaryDirectory() as folder:
        relay = Relay(Path(folder), key)
        begun = [("user", "q0"), ("assistant", "a0"), ("user", "q1"), ("assistant", "a1")]
        for place, (is_longer, word) in enumerate(walk):
            talk = [*begun[: 4 if is_longer else 2], ("user", f"q{word}")]
            body = {"model": "m", "messages": [{"role": role, "content": text} for role, text in talk]}
            relay.answer(relay.send("openai-chat", body), model_answer(f"answer {place}"))
            if not is_late:
                relay.digest()
        relay.digest()
        relay.digest_later()  # two that begin alike may wait for each other's answer
        rows = list(Exchange.objects.all())
        assert len(rows) == len(walk)
        assert [(row.end_reason, row.metadata.get("problem")) for row in rows] == [("done", None)] * len(walk)
        assert all(row.message_id for row in rows)
        relay.journal.close()
