"""A request that ends with an answer: the model goes on with it, and what comes back is the rest.

Mostly the client has written the beginning itself (a prefill: "The answer is ("), and its next request has the two as
one answer. So they are stored as one, which says how much of it was the client's. Where the beginning is an answer that
the record knows (Anthropic's paused turns, one that was cut at its limit), the rest follows it as an entry of its own.

Either way clients differ in how they send the two back: as one text, as the blocks of one message, or as two messages.
The answer is known by each of these, under the name that `names_of` makes of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from history.entries import ModelOutput, Part, Reasoning, Text
from history.models import Message
from history.record import fingerprints
from relay.digest.calls import PendingCall, RecordedAnswer, Spot
from relay.digest.requests import RelayedRequest
from relay.gateway.journal.records import Ended
from relay.models import NamedReply

# How many characters of an answer its client had written; on the answer and on the exchange.
PREFILLED = "prefilled"
ANTHROPIC = "anthropic-messages"


def is_prefill(asked: RelayedRequest, spot: Spot) -> bool:
    """Whether the client itself wrote the answer that the request ends with: nobody here has said it."""
    begun = asked.begun
    if begun is None or asked.is_prefilled or not _is_text(begun):
        return False
    if spot.known < len(asked.entries):
        return True
    known = Message.objects.at(spot.session, spot.after).values_list("metadata", flat=True).first()
    return PREFILLED in (known or {})


def _is_text(begun: ModelOutput) -> bool:
    return isinstance(begun.parts[-1], Text) and all(isinstance(part, (Text, Reasoning)) for part in begun.parts)


def length_of(asked: RelayedRequest) -> int:
    return len(asked.begun.text) if asked.begun else 0


def answer_to(call: PendingCall, ended: Ended) -> RecordedAnswer:
    """The answer of a call that has ended, with what the client had written of it."""
    return completed(call.asked, call.answer or RecordedAnswer(reason=ended.reason))


def completed(asked: RelayedRequest, answer: RecordedAnswer) -> RecordedAnswer:
    """The answer with what the client had written of it; also one that failed or was cut off."""
    if not asked.is_prefilled or answer.output is None:
        return answer
    others = tuple(_whole(asked, other) for other in answer.others)
    return replace(answer, output=_whole(asked, answer.output), others=others, rest=answer.output)


def _whole(asked: RelayedRequest, rest: ModelOutput) -> ModelOutput:
    begun = asked.begun.parts if asked.begun else ()
    parts = rest.parts if _repeats(asked, rest) else joined(begun, rest.parts)
    return replace(rest, parts=parts, metadata={**rest.metadata, PREFILLED: length_of(asked)})


def _repeats(asked: RelayedRequest, rest: ModelOutput) -> bool:
    """Not every vendor goes on with what it finds: some say it again from the beginning. A client of Anthropic's counts
    on the rest alone, whoever answers it."""
    said = asked.begun.text.strip() if asked.begun else ""
    return asked.record.dialect != ANTHROPIC and rest.text.lstrip().startswith(said)


def joined(begun: Sequence[Part], rest: Sequence[Part]) -> tuple[Part, ...]:
    """One text, as clients put the two together. What was thought before the rest comes first."""
    thoughts = [part for part in rest if isinstance(part, Reasoning)]
    said = [part for part in rest if not isinstance(part, Reasoning)]
    *before, last = begun
    if said and isinstance(said[0], Text) and isinstance(last, Text):
        return (*thoughts, *before, replace(said[0], text=last.text + said[0].text), *said[1:])
    return (*thoughts, *begun, *said)


# As the client sends it back.


def names_of(asked: RelayedRequest, answer: RecordedAnswer) -> Iterator[str]:
    """Of the answer to a request that ends with one: for each way in which the two may come back."""
    rest = answer.rest or answer.output
    if asked.begun is None or rest is None or not rest.parts:
        return
    before, end = asked.sent[-2] if len(asked.sent) > 1 else fingerprints.START, asked.sent[-1]
    yield name_of(asked.mark(rest, after=end))
    yield name_of(asked.mark(replace(rest, parts=(*asked.begun.parts, *rest.parts)), after=before))
    yield name_of(asked.mark(replace(rest, parts=joined(asked.begun.parts, rest.parts)), after=before))


def as_stored(asked: RelayedRequest) -> RelayedRequest | None:
    """The request with the chain that the record has, from the newest answer on that is known under such a name."""
    names = {
        name_of(mark): place
        for marks in {asked.sent, asked.chain}
        for place, (entry, mark) in enumerate(zip(asked.entries, marks, strict=False))
        if isinstance(entry, ModelOutput)
    }
    found = NamedReply.objects.filter(key_id=asked.record.key, name__in=list(names), session__hidden_at=None)
    newest = max(found, key=lambda reply: names[reply.name], default=None)
    row = Message.objects.at(newest.session_id, newest.seq).first() if newest else None
    if newest is None or row is None or asked.chain[names[newest.name]] == bytes(row.fingerprint):
        return None
    return asked.chained_from(names[newest.name], bytes(row.fingerprint))


def name_of(mark: bytes) -> str:
    """Fingerprints themselves are shown to nobody, and names of replies are."""
    return f"as sent {sha256(mark).hexdigest()[:40]}"
