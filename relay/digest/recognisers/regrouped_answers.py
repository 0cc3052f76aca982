"""Where a request goes on, also where a client sends answers back in other pieces than the record has them in.

Some come with a beginning that the client wrote, or in two answers (`prefills`). One answer may also come back as its
text in one message and its calls in another (opencode does so with some), or with each result right behind its call,
before the next one (some builds of Codex). So where a request has answers that nobody here knows, their pieces are put
together and looked for once more; what is unknown then, too, stays as it came.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from history.dialects.types import Said
from history.entries import ModelOutput, ToolResults
from history.models import Message
from history.record import fingerprints
from relay.digest.calls import Spot
from relay.digest.recognisers import call_ids
from relay.digest.recognisers.prefills import as_stored
from relay.digest.recognisers.sessions import recognise
from relay.digest.requests import RelayedRequest

Reading = tuple[RelayedRequest, Spot]
# Of one answer; and answers in one request that have results between their pieces.
MOST_PIECES, MOST_ANSWERS = 32, 64


def read_as_stored(asked: RelayedRequest) -> Reading:
    """The request in the form of which the record has most, and where that continues."""
    reading = asked, recognise(asked)
    for read in READINGS:
        reading = read(*reading)
    return reading


def with_stored_ids(asked: RelayedRequest, spot: Spot) -> Reading:
    for _ in range(MOST_ANSWERS):
        if spot.session is None or (other := call_ids.with_stored_ids(asked, spot)) is None:
            break
        asked, spot = other, recognise(other)
    return asked, spot


def with_named_answer(asked: RelayedRequest, spot: Spot) -> Reading:
    if has_unknown(asked, spot) and (other := as_stored(asked)) is not None:
        return other, recognise(other)
    return asked, spot


def with_neighbours_joined(asked: RelayedRequest, spot: Spot) -> Reading:
    if has_unknown(asked, spot) and (other := asked.with_neighbours_joined(since=spot.known)) is not None:
        return _better((asked, spot), other)
    return asked, spot


def joined_over_results(asked: RelayedRequest, spot: Spot) -> Reading:
    for _ in range(MOST_ANSWERS):
        if not has_unknown(asked, spot) or (other := _joined_over_results(asked, since=spot.known)) is None:
            break
        asked, spot = other, recognise(other)
    return asked, spot


def has_unknown(asked: RelayedRequest, spot: Spot) -> bool:
    """Whether the newest answer that the client sends back is not in the record."""
    last = asked.last_answer
    return last is not None and spot.known <= last


def _better(known: Reading, other: RelayedRequest) -> Reading:
    """Whichever reading has more of the request in the record."""
    spot = recognise(other)
    return (other, spot) if _unknown_from(other, spot) > _unknown_from(*known) else known


def _unknown_from(asked: RelayedRequest, spot: Spot) -> float:
    """The message of the request with which begins what the record does not have."""
    places = asked.request.places if asked.request else ()
    return places[spot.known] if spot.known < len(places) else float("inf")


def _joined_over_results(asked: RelayedRequest, *, since: int) -> RelayedRequest | None:
    """With the first unknown answer made whole, if the record has it so."""
    pieces = list(_pieces(asked.entries, since=since))
    whole = _longest_known(asked, pieces)
    if not whole:
        return None
    end = whole[-1] + 1
    if end < len(asked.entries) and isinstance(asked.entries[end], ToolResults):
        end += 1
    results = [place for place in range(whole[0], end) if place not in whole]
    rest = [[place] for place in range(end, len(asked.entries))]
    return asked.regrouped([whole, *filter(None, [results]), *rest])


def _pieces(entries: Sequence[Said], *, since: int) -> Iterator[int]:
    """Where the first unknown answer stands, and those after it that have nothing but results between them."""
    count = 0
    for place in range(since, len(entries)):
        if isinstance(entries[place], ModelOutput) and count < MOST_PIECES:
            count += 1
            yield place
        elif count and not isinstance(entries[place], ToolResults):
            return


def _longest_known(asked: RelayedRequest, pieces: list[int]) -> list[int]:
    """As many of these answers as are one in the record; none, where that is not so of any two."""
    if len(pieces) < 2:
        return []
    after = asked.chain[pieces[0] - 1] if pieces[0] else fingerprints.START
    wholes = (pieces[:count] for count in range(2, len(pieces) + 1))
    marks = {asked.mark(asked.joined(whole), after=after): whole for whole in wholes}
    rows = Message.objects.filter(fingerprint__in=list(marks), kind=ModelOutput.kind, session__hidden_at=None)
    return max((marks[bytes(mark)] for mark in rows.values_list("fingerprint", flat=True)), key=len, default=[])


# Each takes over where the one before has left an answer unknown.
READINGS: tuple[Callable[[RelayedRequest, Spot], Reading], ...] = (
    with_stored_ids,
    with_named_answer,
    with_neighbours_joined,
    joined_over_results,
)
