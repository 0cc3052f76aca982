"""Pairing and order: what every vendor enforces on a conversation with tools, and what we do where it does not hold.

Vendors refuse a call that is not answered directly after it, completely, and an answer to a call that is not there. A
foreign history may be like that, and any history may be after a cut. The stored facts stay as they are: `repair`
returns entries that can be sent and a report of every single thing it did. It is deterministic (no clock, no random
ids), and repairing twice changes nothing. Messages of the same role in a row are left alone: merging them is a matter
of manners that the dialects know best. docs/context.md lists the codes.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from history.context.entries import ContextEntry, Role
from history.entries import Part, ResultStatus, Text, ToolRequest, ToolResult, nothing
from history.text.lazy import gettext_noop as _

OPENING = "(The conversation begins with the following message of yours.)"
NO_RESULT: dict[ResultStatus, str] = {
    "interrupted": "[No result: this call was interrupted.]",
    "skipped": "[No result: the conversation went on before this call was answered.]",
}


class Code(StrEnum):
    """Stable names of what can be remarked on."""

    EMPTY_TEXT_DROPPED = "empty_text_dropped"
    EMPTY_MESSAGE_LEFT_OUT = "empty_message_left_out"
    MISPLACED_CALL_REMOVED = "misplaced_call_removed"
    RESULT_SUPPLIED = "result_supplied"
    ORPHAN_RESULT_REMOVED = "orphan_result_removed"
    DUPLICATE_RESULT_REMOVED = "duplicate_result_removed"
    RESULTS_MOVED = "results_moved"
    RESULTS_MERGED = "results_merged"
    RESULTS_REORDERED = "results_reordered"
    RESULT_NAME_CORRECTED = "result_name_corrected"
    CALL_ID_SUPPLIED = "call_id_supplied"
    CALL_ID_MADE_UNIQUE = "call_id_made_unique"
    OPENING_SUPPLIED = "opening_supplied"
    # What rendering remarks on besides repairs.
    FAILED_ANSWER_LEFT_OUT = "failed_answer_left_out"
    INVALID_ANSWERS_LEFT_OUT = "invalid_answers_left_out"
    LIVE_SCREEN_LEFT_OUT = "live_screen_left_out"
    LIMIT_TURNS = "limit_turns"
    LIMIT_MESSAGES = "limit_messages"
    LIMIT_TOKENS = "limit_tokens"
    TURN_CUT = "turn_cut"
    OVER_MESSAGES = "over_messages"
    OVER_TOKENS = "over_tokens"


# For people; a page translates them by code and fills in the values of the remark.
SENTENCES: dict[Code, str] = {
    Code.EMPTY_TEXT_DROPPED: _("An empty text was left out."),
    Code.EMPTY_MESSAGE_LEFT_OUT: _("A message with nothing in it was left out."),
    Code.MISPLACED_CALL_REMOVED: _("The call of %(name)s was left out: only a model can call a tool."),
    Code.RESULT_SUPPLIED: _("The call of %(name)s has no result; it was answered as %(status)s."),
    Code.ORPHAN_RESULT_REMOVED: _("A result of %(name)s was left out: no call before it asked for it."),
    Code.DUPLICATE_RESULT_REMOVED: _("A second result for the same call of %(name)s was left out."),
    Code.RESULTS_MOVED: _("Results that stood further down were put directly after their calls."),
    Code.RESULTS_MERGED: _("The results for the calls of one answer were put into one message."),
    Code.RESULTS_REORDERED: _("Results were put into the order of their calls."),
    Code.RESULT_NAME_CORRECTED: _("A result named %(given)s answers a call of %(name)s and was renamed."),
    Code.CALL_ID_SUPPLIED: _("The call of %(name)s had no id and got %(call_id)s."),
    Code.CALL_ID_MADE_UNIQUE: _("The call id %(given)s was used twice; this one became %(call_id)s."),
    Code.OPENING_SUPPLIED: _("The conversation began with an answer; an opening message was put before it."),
    Code.FAILED_ANSWER_LEFT_OUT: _("An answer that failed before it said anything was left out."),
    Code.INVALID_ANSWERS_LEFT_OUT: _("%(count)s answers in a row were left out because one of them is empty."),
    Code.LIVE_SCREEN_LEFT_OUT: _("There was no message to show the live screen with."),
    Code.LIMIT_TURNS: _("No more than the newest %(limit)s turns are used."),
    Code.LIMIT_MESSAGES: _("Older turns were left out: together they are more than %(limit)s messages."),
    Code.LIMIT_TOKENS: _("Older turns were left out: together they are more than %(limit)s tokens."),
    Code.TURN_CUT: _("The newest turn is longer than %(limit)s messages; the middle of it was left out."),
    Code.OVER_MESSAGES: _("The least that can be sent has more than %(limit)s messages; it was kept."),
    Code.OVER_TOKENS: _("The newest turn alone has more than %(limit)s tokens; it was kept whole."),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """One thing that was done: a stable code, the entry it was done to (0: none in particular), a sentence."""

    code: Code
    seq: int = 0
    values: Mapping[str, Any] = field(default_factory=nothing)

    @property
    def text(self) -> str:
        return SENTENCES[self.code] % dict(self.values)


@dataclass(frozen=True, slots=True)
class RepairReport:
    remarks: tuple[Remark, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.remarks)

    @property
    def codes(self) -> tuple[Code, ...]:
        return tuple(remark.code for remark in self.remarks)


def repair(entries: Sequence[ContextEntry]) -> tuple[tuple[ContextEntry, ...], RepairReport]:
    """The same conversation in a form that every vendor takes, and what had to be done for that."""
    remarks: list[Remark] = []
    paired = pair(entries, remarks=remarks)
    return with_opening(with_unique_ids(paired, remarks=remarks), remarks=remarks), RepairReport(tuple(remarks))


def pair(
    entries: Sequence[ContextEntry], *, remarks: list[Remark], is_followed: bool = False
) -> tuple[ContextEntry, ...]:
    """Drop what is empty, and put after each answer one message with the results of all its calls, in their order.

    A call without a result is answered as skipped where somebody spoke after it (``is_followed``: behind the end of
    these entries), else as interrupted.
    """
    entries = [kept for entry in entries if (kept := _without_empty_parts(entry, remarks))]
    last_input = max((place for place, entry in enumerate(entries) if entry.role is Role.MODEL_INPUT), default=-1)
    answers = _match(entries, remarks)
    paired: list[ContextEntry] = []
    for place, entry in enumerate(entries):
        if entry.role is not Role.TOOL_RESULT:
            paired.append(entry)
        if place in answers:
            status: ResultStatus = "skipped" if is_followed or place < last_input else "interrupted"
            paired.append(answers[place].to_entry(entries, status=status, remarks=remarks))
    return tuple(paired)


def _without_empty_parts(entry: ContextEntry, remarks: list[Remark]) -> ContextEntry | None:
    """The entry as far as there is something in it; None if there is not."""
    kept: list[Part] = []
    for part in entry.parts:
        if isinstance(part, Text) and not part.text.strip():
            remarks.append(Remark(code=Code.EMPTY_TEXT_DROPPED, seq=entry.seq))
        elif isinstance(part, ToolRequest) and entry.role is not Role.MODEL_OUTPUT:
            remarks.append(Remark(code=Code.MISPLACED_CALL_REMOVED, seq=entry.seq, values={"name": part.name}))
        else:
            kept.append(part)
    if kept or entry.results or entry.live_screen:
        return entry if len(kept) == len(entry.parts) else replace(entry, parts=tuple(kept))
    remarks.append(Remark(code=Code.EMPTY_MESSAGE_LEFT_OUT, seq=entry.seq))
    return None


@dataclass(slots=True)
class _Answers:
    """The calls of the answer at ``place`` and the results found for them: (place of the message, index, result)."""

    place: int
    calls: tuple[ToolRequest, ...]
    found: dict[int, tuple[int, int, ToolResult]] = field(default_factory=dict)

    def to_entry(self, entries: Sequence[ContextEntry], *, status: ResultStatus, remarks: list[Remark]) -> ContextEntry:
        seq = entries[self.place].seq
        remarks.extend(Remark(code=code, seq=seq) for code in self._disorder(entries))
        results = []
        for index, call in enumerate(self.calls):
            if index in self.found:
                results.append(_named_like(call, self.found[index][2], seq=seq, remarks=remarks))
            else:
                values = {"name": call.name, "status": status}
                remarks.append(Remark(code=Code.RESULT_SUPPLIED, seq=seq, values=values))
                results.append(_no_result(call, status=status))
        sources = [entries[place] for place in sorted({place for place, _, _ in self.found.values()})]
        return ContextEntry(
            role=Role.TOOL_RESULT,
            results=tuple(results),
            origin=tuple(dict.fromkeys(seq for source in sources for seq in source.origin)),
            live_screen=next((source.live_screen for source in reversed(sources) if source.live_screen), None),
        )

    def _disorder(self, entries: Sequence[ContextEntry]) -> Iterator[Code]:
        order = [self.found[index][:2] for index in sorted(self.found)]
        if not order:
            return
        if any(entry.role is not Role.TOOL_RESULT for entry in entries[self.place + 1 : max(order)[0]]):
            yield Code.RESULTS_MOVED
        if len({place for place, _ in order}) > 1:
            yield Code.RESULTS_MERGED
        if order != sorted(order):
            yield Code.RESULTS_REORDERED


def _match(entries: Sequence[ContextEntry], remarks: list[Remark]) -> dict[int, _Answers]:
    """Give each result to the nearest call before it that it can answer; what answers none is left out."""
    answers: dict[int, _Answers] = {}
    # The calls that wait for a result, the newest last: a long turn costs no more than its length.
    waiting: defaultdict[_Key, list[tuple[_Answers, deque[int]]]] = defaultdict(list)
    for place, entry in enumerate(entries):
        if calls := entry.tool_requests:
            answers[place] = _Answers(place, calls)
            for key, indexes in _by_key(calls).items():
                waiting[key].append((answers[place], indexes))
        for index, result in enumerate(entry.results):
            key = _key(result)
            if waiting.get(key):
                asking, indexes = waiting[key][-1]
                asking.found[indexes.popleft()] = (place, index, result)
                if not indexes:
                    waiting[key].pop()
            else:
                code = Code.DUPLICATE_RESULT_REMOVED if key in waiting else Code.ORPHAN_RESULT_REMOVED
                remarks.append(Remark(code=code, seq=entry.seq, values={"name": result.name}))
    return answers


# What a result and its call have in common: the id, or where neither has one (some vendors give none) the name.
_Key = tuple[str, str]


def _key(asked: ToolRequest | ToolResult) -> _Key:
    return (asked.call_id, "") if asked.call_id else ("", asked.name)


def _by_key(calls: Iterable[ToolRequest]) -> dict[_Key, deque[int]]:
    """The places of the calls that only their order tells apart, in that order."""
    places: dict[_Key, deque[int]] = {}
    for place, call in enumerate(calls):
        places.setdefault(_key(call), deque()).append(place)
    return places


def _named_like(call: ToolRequest, result: ToolResult, *, seq: int, remarks: list[Remark]) -> ToolResult:
    if result.name == call.name:
        return result
    values = {"given": result.name or "''", "name": call.name}
    remarks.append(Remark(code=Code.RESULT_NAME_CORRECTED, seq=seq, values=values))
    return replace(result, name=call.name)


def _no_result(call: ToolRequest, *, status: ResultStatus) -> ToolResult:
    text = Text(text=NO_RESULT[status])
    return ToolResult(call_id=call.call_id, name=call.name, status=status, parts=(text,))


def with_unique_ids(entries: Sequence[ContextEntry], *, remarks: list[Remark]) -> tuple[ContextEntry, ...]:
    """Give every call of a paired conversation an id of its own, and its result the same one."""
    own_ids = _OwnIds(entries)
    named: list[ContextEntry] = []
    ids: list[str] = []
    for entry in entries:
        if entry.role is Role.TOOL_RESULT:
            named.append(_with_result_ids(entry, ids))
        else:
            ids = [own_ids.take(call, entry.seq, place, remarks) for place, call in enumerate(entry.tool_requests, 1)]
            named.append(_with_call_ids(entry, ids))
    return tuple(named)


class _OwnIds:
    """Hands out each id once. Ids that a later call already has are not given to an earlier one."""

    def __init__(self, entries: Iterable[ContextEntry]) -> None:
        self.given = {call.call_id for entry in entries for call in entry.tool_requests}
        self.used: set[str] = set()
        # Some models name every call alike: remember how far the numbers behind a name have gone.
        self.numbers: defaultdict[str, int] = defaultdict(lambda: 1)

    def take(self, call: ToolRequest, seq: int, place: int, remarks: list[Remark]) -> str:
        call_id = call.call_id
        if not call_id or call_id in self.used:
            call_id = self._free(call_id or f"call_{seq}_{place}")
            code = Code.CALL_ID_MADE_UNIQUE if call.call_id else Code.CALL_ID_SUPPLIED
            values = {"given": call.call_id, "name": call.name, "call_id": call_id}
            remarks.append(Remark(code=code, seq=seq, values=values))
        self.used.add(call_id)
        return call_id

    def _free(self, wanted: str) -> str:
        call_id = wanted
        while call_id in self.given or call_id in self.used:
            self.numbers[wanted] += 1
            call_id = f"{wanted}_{self.numbers[wanted]}"
        return call_id


def _with_call_ids(entry: ContextEntry, ids: Sequence[str]) -> ContextEntry:
    if [call.call_id for call in entry.tool_requests] == ids:
        return entry
    fresh = iter(ids)
    parts = tuple(replace(p, call_id=next(fresh)) if isinstance(p, ToolRequest) else p for p in entry.parts)
    return replace(entry, parts=parts)


def _with_result_ids(entry: ContextEntry, ids: Sequence[str]) -> ContextEntry:
    if [result.call_id for result in entry.results] == ids:
        return entry
    results = tuple(replace(result, call_id=own) for result, own in zip(entry.results, ids, strict=True))
    return replace(entry, results=results)


def with_opening(entries: Sequence[ContextEntry], *, remarks: list[Remark]) -> tuple[ContextEntry, ...]:
    """Several vendors want a conversation to begin with an input; an opening keeps what was said before one."""
    first = next((entry for entry in entries if entry.role is not Role.SYSTEM), None)
    if first is None or first.role is Role.MODEL_INPUT:
        return tuple(entries)
    remarks.append(Remark(code=Code.OPENING_SUPPLIED, seq=first.seq))
    return (ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=OPENING),)), *entries)


def find_unpaired(entries: Sequence[ContextEntry]) -> tuple[str, ...]:
    """What a vendor would refuse: each call or result without its counterpart directly beside it, in words."""
    problems = []
    before: list[str] = []
    for place, entry in enumerate(entries):
        expected = [call.call_id for call in entry.tool_requests]
        answered = [result.call_id for result in entry.results]
        if before and answered != before:
            problems.append(f"entry {place}: expected the results of {before}, got {answered or entry.role.value}")
        elif answered and not before:
            problems.append(f"entry {place}: results of {answered}, which nothing directly before it asked for")
        before = expected
    if before:
        problems.append(f"the last entry leaves {before} unanswered")
    return tuple(problems)
