"""The steps that all random histories have in common; each class of them is for a machine to inherit."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from django.db import transaction
from django.test import override_settings
from django.utils import timezone
from hypothesis import event, strategies as st
from hypothesis.stateful import rule

from history import retention
from history.entries import (
    DebugLog,
    Entry,
    HeadMoved,
    ModelOutput,
    NotebookSet,
    Retracted,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolRequest,
    ToolResult,
    ToolResults,
    ToolsOffered,
    Usage,
)
from history.models import Exchange, Message, SearchRow, Session, ToolCall
from history.record import recorder
from tests.factories import model_input
from tests.history.conformance.plain import CONVERSATION, PlainSession
from tests.history.conformance.state_machine import PICK, PLACES, WHERE, SideBySide, texts_in, without


class Talking(SideBySide):
    @rule(pick=PICK, where=WHERE, status=st.sampled_from(["complete", "complete", "interrupted", "failed"]))
    def answer(self, pick: int, where: int | None, status: Any) -> None:
        usage = Usage(input_tokens=7, output_tokens=3)
        self.append(pick, where, [ModelOutput(parts=(Text(text=self.word()),), status=status, usage=usage)])

    @rule(pick=PICK, where=WHERE, turns=st.integers(1, 3), tomorrow=st.booleans())
    def talk(self, pick: int, where: int | None, turns: int, tomorrow: bool) -> None:
        """Tomorrow's texts are too young to be dropped."""
        at = timezone.now() + timedelta(days=tomorrow)
        chain: list[Entry] = []
        for _ in range(turns):
            request = ToolRequest(call_id="c", name="clock")
            result = ToolResult(call_id="c", name="clock", parts=(Text(text=self.word()),))
            chain += [
                model_input(self.word(), at=at),
                ModelOutput(parts=(request,), at=at),
                ToolResults(results=(result,), at=at),
            ]
        self.append(pick, where, chain)

    @rule(pick=PICK, where=WHERE, what=st.sampled_from(["instruction", "notebook", "tools", "log"]))
    def note(self, pick: int, where: int | None, what: str) -> None:
        word = self.word()
        entry: Entry = {
            "instruction": SystemInstructionSet(instruction=word),
            "notebook": NotebookSet(content=word),
            "tools": ToolsOffered(tools=(ToolDefinition(name=word, description="d" * 1_500),)),
            "log": DebugLog(message=word),
        }[what]
        self.append(pick, where, [entry])


class Summarising(SideBySide):
    @rule(pick=PICK, where=WHERE, ends=st.tuples(PICK, PICK), astray=st.sampled_from([False, False, True]))
    def summarise(self, pick: int, where: int | None, ends: tuple[int, int], astray: bool) -> None:
        """A range of the path; astray: any numbers at all, for who knows what an import holds."""
        session = self.plain.sessions[self.session(pick)]
        numbers = [node.seq for node in session.path_to(self.place(session, where))]
        numbers = list(range(session.version + 3)) if astray else numbers
        if numbers:
            first, last = sorted(numbers[end % len(numbers)] for end in ends)
            at, masks = timezone.now() + timedelta(days=1), self.masks(pick, where)
            self.append(pick, where, [Summary(at=at, first=first, last=last, summary=self.word(), masks=masks)])

    @rule(pick=PICK, where=WHERE)
    def mask(self, pick: int, where: int | None) -> None:
        self.append(pick, where, [Summary(masks=self.masks(pick, where))])

    @rule(pick=PICK, where=WHERE, which=PICK)
    def take_back(self, pick: int, where: int | None, which: int) -> None:
        """A summary on the path, or any entry if there is none."""
        session = self.plain.sessions[self.session(pick)]
        path = session.path_to(self.place(session, where))
        numbers = [node.seq for node in path if isinstance(node.entry, Summary)] or [node.seq for node in path]
        if numbers:
            self.append(pick, where, [Retracted(seq=numbers[which % len(numbers)])])


class Branching(SideBySide):
    @rule(pick=PICK, where=PLACES)
    def move_head(self, pick: int, where: int) -> None:
        name = self.session(pick)
        to = self.place(self.plain.sessions[name], where)
        self.both(name, lambda store, session: store.move_head(session, to=to))

    @rule(pick=PICK, where=PLACES, regenerate=st.booleans())
    def say_differently(self, pick: int, where: int, regenerate: bool) -> None:
        name = self.session(pick)
        row = self.row(self.plain.sessions[name], where)
        if row is None:
            return
        session, entry = self.real.read(self.names[name]), model_input(self.word())
        if regenerate:
            assert recorder.regenerate(session, seq=row.seq) == row.parent
            self.plain.move_head(name, to=row.parent)
        else:
            appended = recorder.edit(session, seq=row.seq, entry=entry)
            stored = self.plain.append_many(name, [HeadMoved(to=row.parent), entry], after=row.parent)[-1]
            assert (appended.seq, appended.moved_head) == (stored.seq, stored.moved_head)
        self.compare(name)

    @rule(pick=PICK, where=WHERE)
    def fork(self, pick: int, where: int | None) -> None:
        """The copy says to a model what the original says. A few are kept and go on."""
        name = self.session(pick)
        at = self.place(self.plain.sessions[name], where)
        if at in self.plain.sessions[name].gone:
            return
        with transaction.atomic():
            copy = self.plain.fork(name, at=at)
            self.names[copy] = self.real.fork(self.names[name], at=at)
            assert texts_in(self.real.sent_messages(self.names[copy])) == texts_in(self.told_by_entries(name, at))
            self.compare(copy)
            if len(self.names) > 3:
                transaction.set_rollback(True)
                del self.names[copy], self.plain.sessions[copy]


class Thinning(SideBySide):
    """Each step has an argument: of those without one Hypothesis takes the first far more often than the others."""

    @rule(limit=st.integers(1, 8))
    def trim(self, limit: int) -> None:
        before = {name: self.holdings(name) for name in self.names}
        told_before = {name: self.told_at_leaves(name) for name in self.names}
        with override_settings(CHAT_HISTORY_MAX_MESSAGES=limit):
            retention.purge(dry_run=False)
        for name, real in self.names.items():
            kept = self.plain.sessions[name]
            seqs = set(Message.objects.filter(session=UUID(real)).values_list("seq", flat=True))
            gone = {row.seq for row in kept.written} - seqs
            if gone != kept.gone:
                event("something was trimmed")
                assert name not in self.held
                assert kept.source == "relay"
                check_that_pairs_stay_together(kept, gone)
                kept.gone, kept.trimmed_through = gone, self.real.read(real).trimmed_through
            assert self.holdings(name) == {leaf: held for leaf, held in before[name].items() if leaf not in gone}
            assert self.told_at_leaves(name) == {
                leaf: without(told, gone) for leaf, told in told_before[name].items() if leaf not in gone
            }
        self.compare_all()

    @rule(hours=st.sampled_from([23, 25]))
    def drop_texts(self, hours: int) -> None:
        with override_settings(CHAT_HISTORY_BODY_DAYS=1):
            retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=hours))
        self.empty_the_trash(hours)
        for name, real in self.names.items():
            dropped = set(Message.objects.filter(session=UUID(real), body=None).values_list("seq", flat=True))
            if dropped - self.plain.sessions[name].dropped:
                event("texts were dropped")
                assert name not in self.held
            self.plain.sessions[name].dropped = dropped
        self.compare_all()

    @rule(hours=st.sampled_from([23, 25]))
    def empty_the_trash(self, hours: int) -> None:
        retention.purge(dry_run=False, now=timezone.now() + timedelta(hours=hours))
        for name in sorted(self.hidden - self.held) if hours > 24 else ():
            real = UUID(self.names.pop(name))
            self.hidden.discard(name)
            del self.plain.sessions[name]
            assert not Session.objects.filter(pk=real).exists()
            for model in (Message, ToolCall, Exchange):
                assert not model._default_manager.filter(session=real).exists()
        assert not SearchRow.objects.exclude(message__session__in=map(UUID, self.names.values())).exists()
        if not self.names:
            self.begin_session("chat")


def check_that_pairs_stay_together(session: PlainSession, gone: set[int]) -> None:
    """No trim removes a call without its results or the reverse, on any branch."""
    for row in session.rows:
        if isinstance(row.entry, ToolResults):
            above = [node for node in session.path_to(row.parent) if isinstance(node.entry, CONVERSATION)]
            if above and isinstance(above[-1].entry, ModelOutput):
                assert (row.seq in gone) == (above[-1].seq in gone)
