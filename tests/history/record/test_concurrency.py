"""Concurrent writers in several processes: nothing is lost or numbered twice, and no write is refused."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.servers.writers import Writers

WRITERS = 8
MANY = 25


def written(writers: Writers, *, many: int, sessions: list[str]) -> list[dict[str, Any]]:
    """Eight processes append at the same time; everything that was acknowledged to them."""
    line = writers.run("write_together", WRITERS, many, *sessions)
    appended = []
    while "exit_codes" not in line:
        appended.append(line)
        line = writers.next_line(writers.helper)
    assert line["exit_codes"] == [0] * WRITERS
    return appended


def check_that_nothing_is_lost(writers: Writers, session: str, appended: list[dict[str, Any]]) -> Any:
    survey = writers.run("survey", session)
    rows = {row["seq"]: row for row in survey["rows"]}
    assert list(rows) == list(range(1, survey["version"] + 1))
    mine = [one for one in appended if one["session"] == session]
    assert len(rows) == len(mine) + 1
    for one in mine:
        row = rows[one["seq"]]
        assert (row["content"], row["parent_seq"], row["moved_head"]) == (one["text"], one["after"], one["moved"])
    assert survey["findings"] == []
    return survey


def test_eight_processes_write_one_session_and_who_comes_second_gets_a_branch(writers: Writers) -> None:
    [session] = writers.run("begin", 1)
    appended = written(writers, many=MANY, sessions=[session])
    assert len(appended) == WRITERS * MANY * 2
    survey = check_that_nothing_is_lost(writers, session, appended)
    siblings = Counter(row["parent_seq"] for row in survey["rows"])
    path = [row["seq"] for row in survey["rows"] if row["on_path"]]
    # Of the entries after one parent exactly one moved the head, and those make the path.
    assert max(siblings.values()) > 1
    assert [row["seq"] for row in survey["rows"] if row["moved_head"]] == path
    assert survey["head"] == path[-1]
    assert survey["messages"] == len(path)


def test_eight_processes_write_several_sessions_side_by_side(writers: Writers) -> None:
    sessions = writers.run("begin", 4)
    appended = written(writers, many=MANY, sessions=sessions)
    assert len(appended) == WRITERS * MANY * 2
    for session in sessions:
        check_that_nothing_is_lost(writers, session, appended)
