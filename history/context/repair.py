"""Repair, curation and validation of contexts: calls with their results, unique ids. See docs/internals/context.md."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from history.context.values import ContextEntry, Entries, Remark, RemarkCode, RepairReport, Role
from history.entries import OtherPart, Part, ResultStatus, Text, ToolRequest, ToolResult

OPENING = "(The conversation begins with the following message of yours.)"
NO_RESULT: dict[ResultStatus, str] = {
    "interrupted": "[No result: this call was interrupted.]",
    "skipped": "[No result: the conversation went on before this call was answered.]",
}


def repair(entries: Sequence[ContextEntry]) -> tuple[Entries, RepairReport]:
    """The conversation in a form that every vendor accepts, and a report of the changes."""
    remarks: list[Remark] = []
    paired = pair(entries, remarks=remarks)
    return with_opening(with_unique_ids(paired, remarks=remarks), remarks=remarks), RepairReport(tuple(remarks))


def pair(entries: Sequence[ContextEntry], *, remarks: list[Remark], is_followed: bool = False) -> Entries:
    """Drop empty parts, and put one message with all results, in order, directly after each answer with calls.

    A call without a result gets the status skipped if an input follows it (``is_followed``), else interrupted.
    """
    entries = [filled for entry in entries if (filled := _without_empty_parts(entry, remarks))]
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
    parts: list[Part] = []
    for part in entry.parts:
        if isinstance(part, Text) and not part.text.strip():
            remarks.append(Remark(RemarkCode.EMPTY_TEXT_DROPPED, entry.seq))
        elif isinstance(part, ToolRequest) and entry.role is not Role.MODEL_OUTPUT:
            remarks.append(Remark(RemarkCode.MISPLACED_CALL_REMOVED, entry.seq, {"name": part.name}))
        else:
            parts.append(part)
    if parts or entry.results or entry.live_screen:
        return entry if len(parts) == len(entry.parts) else replace(entry, parts=tuple(parts))
    remarks.append(Remark(RemarkCode.EMPTY_MESSAGE_LEFT_OUT, entry.seq))
    return None


@dataclass(slots=True)
class _Answers:
    """The calls of the answer at ``place``, and their results as (place of the message, index, result)."""

    place: int
    calls: tuple[ToolRequest, ...]
    results: dict[int, tuple[int, int, ToolResult]] = field(default_factory=dict)

    def to_entry(self, entries: Sequence[ContextEntry], *, status: ResultStatus, remarks: list[Remark]) -> ContextEntry:
        seq = entries[self.place].seq
        remarks.extend(Remark(code, seq) for code in self._disorder(entries))
        results = []
        for index, call in enumerate(self.calls):
            result = self.results[index][2] if index in self.results else None
            if result is None:
                remarks.append(Remark(RemarkCode.RESULT_SUPPLIED, seq, {"name": call.name, "status": status}))
                note = Text(text=NO_RESULT[status])
                result = ToolResult(call_id=call.call_id, name=call.name, status=status, parts=(note,))
            elif result.name != call.name:
                values = {"given": result.name or "''", "name": call.name}
                remarks.append(Remark(RemarkCode.RESULT_NAME_CORRECTED, seq, values))
                result = replace(result, name=call.name)
            results.append(result)
        sources = [entries[place] for place in sorted({place for place, _, _ in self.results.values()})]
        return ContextEntry(
            role=Role.TOOL_RESULT,
            results=tuple(results),
            origin=tuple(dict.fromkeys(seq for source in sources for seq in source.origin)),
            live_screen=next((source.live_screen for source in reversed(sources) if source.live_screen), None),
        )

    def _disorder(self, entries: Sequence[ContextEntry]) -> Iterator[RemarkCode]:
        order = [self.results[index][:2] for index in sorted(self.results)]
        if not order:
            return
        if any(entry.role is not Role.TOOL_RESULT for entry in entries[self.place + 1 : max(order)[0]]):
            yield RemarkCode.RESULTS_MOVED
        if len({place for place, _ in order}) > 1:
            yield RemarkCode.RESULTS_MERGED
        if order != sorted(order):
            yield RemarkCode.RESULTS_REORDERED


def _match(entries: Sequence[ContextEntry], remarks: list[Remark]) -> dict[int, _Answers]:
    """Assign each result to the nearest call before it with the same key; drop results without one."""
    answers: dict[int, _Answers] = {}
    # Calls without a result by key, the last answer's first call on top: this keeps a long turn linear.
    waiting: defaultdict[_Key, list[tuple[_Answers, int]]] = defaultdict(list)
    for place, entry in enumerate(entries):
        if calls := entry.tool_requests:
            answers[place] = _Answers(place, calls)
            for number in reversed(range(len(calls))):
                waiting[_key(calls[number])].append((answers[place], number))
        for index, result in enumerate(entry.results):
            key = _key(result)
            if waiting.get(key):
                match, number = waiting[key].pop()
                match.results[number] = (place, index, result)
            else:
                code = RemarkCode.DUPLICATE_RESULT_REMOVED if key in waiting else RemarkCode.ORPHAN_RESULT_REMOVED
                remarks.append(Remark(code, entry.seq, {"name": result.name}))
    return answers


_Key = tuple[str, str]  # a call and its result share the id, or the name for vendors without ids


def _key(item: ToolRequest | ToolResult) -> _Key:
    return (item.call_id, "") if item.call_id else ("", item.name)


def with_unique_ids(entries: Sequence[ContextEntry], *, remarks: list[Remark]) -> Entries:
    """Give every call of a paired conversation a unique id, and its result the same one."""
    original = {call.call_id for entry in entries for call in entry.tool_requests}
    used: set[str] = set()
    # Some models use one id for every call: the last number added to each id.
    numbers: defaultdict[str, int] = defaultdict(lambda: 1)

    def take(call: ToolRequest, seq: int, place: int) -> str:
        """Use each id once. A new id never equals the id of a later call."""
        call_id = call.call_id
        if not call_id or call_id in used:
            wanted = call_id = call_id or f"call_{seq}_{place}"
            while call_id in original or call_id in used:
                numbers[wanted] += 1
                call_id = f"{wanted}_{numbers[wanted]}"
            code = RemarkCode.CALL_ID_MADE_UNIQUE if call.call_id else RemarkCode.CALL_ID_SUPPLIED
            remarks.append(Remark(code, seq, {"given": call.call_id, "name": call.name, "call_id": call_id}))
        used.add(call_id)
        return call_id

    named: list[ContextEntry] = []
    ids: list[str] = []
    for entry in entries:
        if entry.role is Role.TOOL_RESULT:
            if [result.call_id for result in entry.results] != ids:
                pairs = zip(entry.results, ids, strict=True)
                entry = replace(entry, results=tuple(replace(result, call_id=own) for result, own in pairs))
        else:
            ids = [take(call, entry.seq, place) for place, call in enumerate(entry.tool_requests, 1)]
            if [call.call_id for call in entry.tool_requests] != ids:
                fresh = iter(ids)
                parts = (replace(p, call_id=next(fresh)) if isinstance(p, ToolRequest) else p for p in entry.parts)
                entry = replace(entry, parts=tuple(parts))
        named.append(entry)
    return tuple(named)


def with_opening(entries: Sequence[ContextEntry], *, remarks: list[Remark]) -> Entries:
    """Put an opening before a first answer: several vendors require an input first."""
    first = next((entry for entry in entries if entry.role is not Role.SYSTEM), None)
    if first is None or first.role is Role.MODEL_INPUT:
        return tuple(entries)
    remarks.append(Remark(RemarkCode.OPENING_SUPPLIED, first.seq))
    return (ContextEntry(role=Role.MODEL_INPUT, parts=(Text(text=OPENING),)), *entries)


def find_unpaired(entries: Sequence[ContextEntry]) -> tuple[str, ...]:
    """Describe each call or result without its counterpart directly beside it: vendors refuse these."""
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


class InvalidContextError(ValueError):
    """Entries that must not be sent; the text names them."""


def validate(entries: Sequence[ContextEntry]) -> None:
    """Raise :class:`InvalidContextError` for an unknown role, or a call without its results directly after it."""
    for entry in entries:
        if entry.role not in tuple(Role):
            raise InvalidContextError(f"Role must be one of {', '.join(Role)}, but got {entry.role}.")
    if problems := find_unpaired(entries):
        raise InvalidContextError("; ".join(problems))


def curate(entries: Sequence[ContextEntry], *, remarks: list[Remark] | None = None) -> Entries:
    """Drop every run of answers with an invalid one. Repair afterwards: a result may have lost its call."""
    curated: list[ContextEntry] = []
    for is_output, group in groupby(entries, key=lambda entry: entry.role is Role.MODEL_OUTPUT):
        run = list(group)
        if not is_output or all(is_valid(entry) for entry in run):
            curated.extend(run)
        elif remarks is not None:
            remarks.append(Remark(RemarkCode.INVALID_ANSWERS_LEFT_OUT, run[0].seq, {"count": len(run)}))
    return tuple(curated)


def is_valid(entry: ContextEntry) -> bool:
    """Whether an answer has parts and none is empty. Reasoning without text is valid: its signature counts."""
    return bool(entry.parts) and not any(
        (isinstance(part, Text) and part.text == "") or (isinstance(part, OtherPart) and not part.data)
        for part in entry.parts
    )
