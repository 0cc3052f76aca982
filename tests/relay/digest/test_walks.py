"""Random programs: after any changes to a conversation, the history has each entry once, on one path.

Each walk drives several programs under one key, in turns, and keeps beside each what a reader must find: a model of
what a client said against what the history holds.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from history.entries import ModelOutput
from history.models import ApiKey, Exchange, Message, Session, ToolCall
from history.verification import verify
from tests.factories import example_count
from tests.relay.digest.programs import (
    AnthropicInPieces,
    AnthropicSdk,
    Chat,
    ChatInPieces,
    ChatOneByOne,
    ClaudeCode,
    Codex,
    GeminiCli,
    OpenCode,
    Program,
)
from tests.relay.digest.relayed import Relay, call, half_bytes, model_answer, path_of, remove_everything

pytestmark = pytest.mark.django_db

LIST: dict[type[Program], str] = {Codex: "input", GeminiCli: "contents"}
STEPS = (
    *("say", "say", "tool", "tools", "edit", "regenerate", "regenerate in vain", "return", "error", "half", "gone"),
    "title",
)
# Claude Code's line for billing is left out, and said so.
BILLING = re.compile("x-anthropic-billing-header:")
THEN = ("digest", "digest", "later", "reborn")


@dataclass
class Talk:
    """A program, what a reader must find on its path, and the conversations that it has left."""

    program: Program
    name: str
    lines: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # of each of these, among the messages of the program
    shown: list[str] = field(default_factory=list)  # when it called last
    left: list[tuple[list[Any], list[str], list[int]]] = field(default_factory=list)
    count: int = 0
    begins: int = 0

    def __post_init__(self) -> None:
        self.begins = len(self.messages)

    @property
    def messages(self) -> list[Any]:
        found: list[Any] = self.program.body[LIST.get(type(self.program), "messages")]
        return found

    def leave(self) -> None:
        self.left.append((copy.deepcopy(self.messages), list(self.lines), list(self.ends)))

    def go_back(self, place: int) -> None:
        said, told, ends = self.left[place % len(self.left)]
        self.leave()
        self.messages[:], self.lines[:], self.ends[:] = copy.deepcopy(said), list(told), list(ends)

    def note_line(self, line: str) -> None:
        self.lines.append(line)
        self.ends.append(len(self.messages))

    def cut(self, back_to: str) -> None:
        """Back to before the newest answer, or before the newest question."""
        while self.lines and not self.lines.pop().startswith(back_to):
            pass
        del self.ends[len(self.lines) :]
        del self.messages[self.ends[-1] if self.ends else self.begins :]

    def word(self, what: str) -> str:
        self.count += 1
        return f"{what} {self.count} of {self.name}"


class Walk:
    def __init__(self, relay: Relay, programs: list[Callable[..., Program]]) -> None:
        self.relay = relay
        ids = ("X-Claude-Code-Session-Id", "thread-id", "session-id")
        self.talks = [
            Talk(program(relay, **dict.fromkeys(ids, f"talk-{place}")), name=f"talk {place}")
            for place, program in enumerate(programs)
        ]
        self.answers: list[str] = []
        self.questions: list[str] = []
        self.side_calls: dict[UUID, str] = {}
        # Every text of each first request and of every new tail.
        self.texts: set[str] = set()

    def step(self, talk: Talk, what: str, number: int) -> None:
        if what == "return":
            if talk.left:
                talk.go_back(number)
            what = "say"
        if what in ("edit", "regenerate", "regenerate in vain") and len(talk.lines) < 2:
            what = "say"
        match what:
            case "say":
                self.relay_call(talk)
                self.answer(talk)
            case "tool" | "tools":
                self.relay_call(talk)
                self.use_tools(talk, 1 if what == "tool" else 2)
                self.answer(talk)
            case "edit":
                talk.leave()
                talk.cut("u:")
                self.relay_call(talk)
                self.answer(talk)
            case "regenerate":
                talk.leave()
                talk.cut("a:")
                self.answer(talk)
            case "regenerate in vain":
                talk.leave()
                talk.cut("a:")
                self.relay.end(self.send(talk), "client_gone", status=0)
                talk.shown = list(talk.lines)
                talk.go_back(-1)
            case "error":
                self.relay_call(talk)
                self.relay.fail(self.send(talk), 500, b'{"error": {"message": "broken"}}')
                self.answer(talk)
            case "title":
                self.ask_for_title(talk)
                self.relay_call(talk)
                self.answer(talk)
            case "half" | "gone":
                self.relay_call(talk)
                exchange = self.send(talk)
                if what == "half":
                    self.relay.journal.reply(
                        exchange, half_bytes(talk.program.dialect, model_answer(talk.word("Half")))
                    )
                self.relay.end(exchange, "client_gone")
                self.answer(talk)

    def ask_for_title(self, talk: Talk) -> None:
        """Of a program that does so, also before the first question."""
        program, word = talk.program, talk.word("Side call")
        if isinstance(program, OpenCode) or type(program) is ClaudeCode:
            exchange = program.send_title(word)
            self.side_calls[exchange] = word
            self.relay.answer(exchange, model_answer(f"About {word}"))

    def relay_call(self, talk: Talk) -> None:
        text = talk.word("Question")
        talk.program.add_user_text(text)
        talk.note_line(f"u:{text}")
        self.questions.append(text)

    def answer(self, talk: Talk) -> None:
        self.add_answer(talk, model_answer(talk.word("Answer")))

    def add_answer(self, talk: Talk, output: ModelOutput) -> None:
        self.relay.answer(self.send(talk), output)
        talk.program.add_answer(output)
        talk.note_line(f"a:{output.text}")
        talk.shown = list(talk.lines)
        self.answers.append(output.text)

    def send(self, talk: Talk) -> UUID:
        """Of a later request, what is said last is new: the reminders of messages that were sent before may change."""
        exchange = talk.program.send()
        is_first = talk.program.turns == 1
        self.texts.update(texts_in(talk.program.request() if is_first else {"content": talk.messages[-1:]}))
        return exchange

    def use_tools(self, talk: Talk, count: int) -> None:
        calls = [call("read_file", f"c{place}", path=talk.word("file")) for place in range(count)]
        self.add_answer(talk, model_answer(talk.word("I look"), *calls))
        found = {one.call_id: talk.word("Result") for one in calls}
        talk.program.find(**found)
        talk.note_line("t:" + "\n\n".join(found.values()))


def texts_in(value: Any, name: str = "") -> Iterator[str]:
    """The texts that a request says: of its instruction, its messages and its results."""
    if isinstance(value, str) and name in ("text", "content", "output"):
        yield value.strip()
    elif isinstance(value, list):
        for one in value:
            yield from texts_in(one, name)
    elif isinstance(value, dict):
        for key, one in value.items():
            if key not in ("tools", "metadata", "client_metadata", "thinking", "functionCall"):
                yield from texts_in(one, key)


def opencode(relay: Relay, **headers: str) -> OpenCode:
    return OpenCode(relay, session=headers["session-id"])


PROGRAMS: list[Callable[..., Program]] = [
    Chat,
    opencode,
    AnthropicSdk,
    ClaudeCode,
    Codex,
    GeminiCli,
    ChatInPieces,
    AnthropicInPieces,
    ChatOneByOne,
]
steps = st.lists(
    st.tuples(st.integers(0, 2), st.sampled_from(STEPS), st.integers(0, 5), st.sampled_from(THEN)),
    min_size=1,
    max_size=12,
)


@given(programs=st.lists(st.sampled_from(PROGRAMS), min_size=1, max_size=3), walk=steps)
@settings(max_examples=example_count(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_history_has_each_message_once_and_on_one_path(
    programs: list[Callable[..., Program]], walk: list[tuple[int, str, int, str]], key: ApiKey
) -> None:
    remove_everything()
    with TemporaryDirectory() as place:
        relay = Relay(Path(place), key)
        acted = Walk(relay, programs)
        for who, what, number, then in walk:
            acted.step(acted.talks[who % len(programs)], what, number)
            if then != "later":
                relay.digest()
            if then == "reborn":
                relay.reborn()
        relay.digest()
        relay.journal.close()
    begun = [talk for talk in acted.talks if talk.lines]
    assert Session.objects.count() == len(begun)
    for talk in begun:
        session = Session.objects.get(messages__content__endswith=talk.shown[-1][2:])
        spoken = [line for line in path_of(session) if "<environment_context>" not in line and "【错误】" not in line]
        assert [line[:2] + line[2:].split("</session_context>")[-1].strip() for line in spoken] == talk.shown
    stored = list(Message.objects.filter(kind="model_output").values_list("content", flat=True))
    for answer in acted.answers:
        assert stored.count(answer) == 1
    for question in acted.questions:
        assert Message.objects.filter(kind="model_input", content__endswith=question).count() == 1
    assert not Exchange.objects.filter(ended_at=None).exists()
    everything = "\n".join(Message.objects.values_list("content", flat=True))
    assert [text for text in acted.texts if text not in everything and not BILLING.match(text)] == []
    for exchange, word in acted.side_calls.items():
        row = Exchange.objects.get(pk=exchange)
        assert row.session is not None
        assert Message.objects.get(session=row.session, content__endswith=f"About {word}").kind == "debug_log"
    assert not ToolCall.objects.filter(message__on_path=True, answered_by=None).exists()
    assert list(verify()) == []
