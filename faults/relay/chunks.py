"""Either end of a call goes away, after every number of words."""

from __future__ import annotations

from pathlib import Path

from faults.relay.callers import Told, ask
from faults.relay.house import Recorded, house
from faults.relay.ledger import check_nothing_doubled
from faults.relay.upstream import WORDS, words_of


def run(folder: Path, server: str, rounds: int) -> str:
    places = [place for place in range(WORDS + 1) for _ in range(max(1, rounds // 20))]
    with house(folder, server=server) as here:
        gone = [ask(here, number, leave_after=place) for number, place in enumerate(places)]
        cut = [ask(here, 1_000 + n, more=f", cut {place}") for n, place in enumerate(places) if place < WORDS]
        recorded = here.settled(at_least=len(gone) + len(cut))
    check_nothing_doubled(recorded)
    for told in gone:
        _check(told, recorded, ends=("client_gone", "done"))
    for told in cut:
        assert not told.is_whole, f"{told.question} looked whole to its client"
        _check(told, recorded, ends=("upstream_cut", "upstream_error"))
    return f"{len(gone)} clients and {len(cut)} upstreams left, after every word: each call says so, with what was said"


def _check(told: Told, recorded: Recorded, *, ends: tuple[str, ...]) -> None:
    [row] = [row for row in recorded.rows if row["id"] == told.exchange]
    assert row["reason"] in ends, f"{told.question}: {row['reason']}"
    answer = row["answer"].replace("【错误】", "").strip()
    if row["reason"] in ("client_gone", "upstream_cut", "done"):
        assert words_of(told.number).startswith(answer), f"{told.question}: {answer!r} was never said"
        assert answer.startswith(told.text.strip()), f"{told.question}: {told.text!r} was said and only {answer!r} kept"
