"""Call ids that clients invent: calls and results are paired with the stored answer by position and name.

Some vendors give no ids to calls (Gemini), and some servers leave them empty. Parley makes an id from what is asked.
Many clients invent another one and send it with the call and with its result (Gemini CLI, the Vercel AI SDK,
pydantic-ai). An answer is recognised whatever the ids of its calls are. So where the stored answer has other ids than
the request, the request is read with the stored ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from history.dialects.request_decoder import call_id_for
from history.entries import ModelOutput, ToolRequest, ToolResult, ToolResults
from history.models import Message
from history.record.fingerprints import is_known_by_id
from history.record.loading import entries_of
from relay.digest.calls import Spot
from relay.digest.requests import RelayedRequest


def with_stored_ids(asked: RelayedRequest, spot: Spot) -> RelayedRequest | None:
    """The request with the ids that the record has; None if they are the same or the record has no such answer.

    Ids of our own are put into all later answers as well: a model that gives none rarely begins to.
    """
    place = spot.known - 1
    answer = asked.entries[place] if 0 <= place < len(asked.entries) else None
    if not isinstance(answer, ModelOutput) or not _may_have_other_ids(asked, answer, place):
        return None
    stored = _stored_calls(spot)
    renames = {place: _renames(answer.tool_requests, stored, _results_after(asked, place))}
    if not any(renames.values()):
        return None
    if [call.call_id for call in stored] == _own_ids(stored):
        for later, entry in enumerate(asked.entries[place + 1 :], place + 1):
            if isinstance(entry, ModelOutput) and entry.tool_requests:
                renames[later] = _own_renames(entry.tool_requests)
    return asked.with_call_ids(renames)


def _may_have_other_ids(asked: RelayedRequest, answer: ModelOutput, place: int) -> bool:
    """Not if the answer was recognised by the ids of its calls."""
    has_results = any(True for _ in _results_after(asked, place))
    return has_results and not all(map(is_known_by_id, answer.tool_requests))


def _results_after(asked: RelayedRequest, place: int) -> Iterator[ToolResult]:
    for entry in asked.entries[place + 1 :]:
        if isinstance(entry, ModelOutput):
            return
        if isinstance(entry, ToolResults):
            yield from entry.results


def _stored_calls(spot: Spot) -> Sequence[ToolRequest]:
    rows = list(Message.objects.at(spot.session, spot.after).filter(kind=ModelOutput.kind))
    return [call for entry in entries_of(rows) if isinstance(entry, ModelOutput) for call in entry.tool_requests]


def _renames(
    sent: Sequence[ToolRequest], stored: Sequence[ToolRequest], results: Iterator[ToolResult]
) -> dict[str, str]:
    """From each id that was sent to that of the first stored call of the same name that has no other."""
    renames: dict[str, str] = {}
    left = [call for call in stored if call.call_id not in {one.call_id for one in sent}]
    known = {call.call_id for call in stored}
    # Some clients put an id into the result alone.
    calls: list[ToolRequest | ToolResult] = [*sent, *results]
    for one in calls:
        if one.call_id in known or one.call_id in renames:
            continue
        found = next((call for call in left if one.name in ("", call.name)), None)
        if found is not None:
            left.remove(found)
            renames[one.call_id] = found.call_id
    return renames


def _own_ids(calls: Sequence[ToolRequest]) -> list[str]:
    found: list[str] = []
    for call in calls:
        found.append(call_id_for(call.name, call.arguments, taken=set(found)))
    return found


def _own_renames(calls: Sequence[ToolRequest]) -> dict[str, str]:
    return dict(zip((call.call_id for call in calls), _own_ids(calls), strict=True))
