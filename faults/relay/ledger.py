"""What clients were told against what was recorded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from faults.relay.callers import ClientCall
from faults.relay.installation import RecordedCalls

# The words have been said, or the record says why not all of them are there.
HONEST = frozenset(
    {
        "done",
        "damaged",
        "server_lost",
        "client_gone",
        "upstream_cut",
        "upstream_error",
        "upstream_unreadable",
        "stopped",
        "not_kept",
    }
)


def check_nothing_doubled(recorded: RecordedCalls) -> None:
    twice = [question for question, count in Counter(recorded.asked).items() if count > 1]
    assert not twice, f"stored twice: {twice[:5]}"
    ids = [row["id"] for row in recorded.rows]
    assert len(ids) == len(set(ids)), "two exchanges under one id"


def check_acknowledged(
    told: Sequence[ClientCall], recorded: RecordedCalls, *, ends: Collection[str] = ("done",)
) -> list[ClientCall]:
    """Each call whose reply came whole stands there once, with all of its words; those that are not there are given.

    `ends`: what else may stand there of such a call: with a worker killed just then, the beginning of the reply.
    """
    by_id, missing = {row["id"]: row for row in recorded.rows}, []
    for one in told:
        row = by_id.get(one.exchange)
        if one.is_whole and row is None:
            missing.append(one)
        elif one.is_whole and row is not None:
            assert row["reason"] in ends, f"{one.question} was answered whole and is recorded as {row['reason']}"
            assert row["asked"] == [one.question], f"{one.question} is recorded as {row['asked']}"
            _check_words(one, row["answer"], is_whole=row["reason"] == "done" and not row["lost"])
    return missing


def _check_words(one: ClientCall, answer: str, *, is_whole: bool) -> None:
    if is_whole:
        assert answer.strip() == one.text.strip(), f"{one.question}: {answer!r} instead of {one.text!r}"
    else:
        assert one.text.startswith(answer.strip()), f"{one.question}: {answer!r} was never said"


def check_all_ended(recorded: RecordedCalls) -> None:
    assert recorded.is_settled, "a call has no end"
    others = {row["reason"] for row in recorded.rows} - HONEST
    assert not others, f"unknown ends: {others}"
