"""Either end of a call goes away, after every number of words."""

from __future__ import annotations

from pathlib import Path

from faults.relay.callers import ClientCall, call_relay
from faults.relay.installation import RecordedCalls, installation
from faults.relay.ledger import check_nothing_doubled
from faults.relay.upstream import WORDS, words_of


def run(folder: Path, server: str, rounds: int) -> str:
    places = [place for place in range(WORDS + 1) for _ in range(max(1, rounds // 20))]
    with installation(folder, server=server) as here:
        gone = [call_relay(here, number, leave_after=place) for number, place in enumerate(places)]
        cut = [call_relay(here, 1_000 + n, more=f", cut {place}") for n, place in enumerate(places) if place < WORDS]
        recorded = here.settled(at_least=len(gone) + len(cut))
    check_nothing_doubled(recorded)
    for call in gone:
        _check(call, recorded, ends=("client_gone", "done"))
    for call in cut:
        assert not call.is_whole, f"{call.question} looked whole to its client"
        _check(call, recorded, ends=("upstream_cut", "upstream_error"))
    return f"{len(gone)} clients and {len(cut)} upstreams left, after every word: each call says so, with what was said"


def _check(call: ClientCall, recorded: RecordedCalls, *, ends: tuple[str, ...]) -> None:
    [row] = [row for row in recorded.rows if row["id"] == call.exchange]
    assert row["reason"] in ends, f"{call.question}: {row['reason']}"
    answer = row["answer"].replace("【错误】", "").strip()
    if row["reason"] in ("client_gone", "upstream_cut", "done"):
        assert words_of(call.number).startswith(answer), f"{call.question}: {answer!r} was never said"
        assert answer.startswith(call.text.strip()), f"{call.question}: {call.text!r} was said and only {answer!r} kept"
