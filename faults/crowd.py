"""Many processes at once on few sessions, for a while."""

from __future__ import annotations

from tests.servers.writers import Writers

WRITERS = 16
SESSIONS = 3


def run(elsewhere: Writers, rounds: int) -> str:
    sessions = elsewhere.run("begin", SESSIONS)
    appended = []
    line = elsewhere.run("write_together", WRITERS, 10 * rounds, *sessions)
    while "exit_codes" not in line:
        appended.append(line)
        line = elsewhere.next_line(elsewhere.helper)
    assert line["exit_codes"] == [0] * WRITERS, f"writers were turned away: {line['exit_codes']}"
    for session in sessions:
        survey = elsewhere.run("survey", session)
        rows = {row["seq"]: row for row in survey["rows"]}
        mine = [one for one in appended if one["session"] == session]
        assert len(rows) == len(mine) + 1 == survey["version"], f"{session} has {len(rows)} entries"
        assert all(rows[one["seq"]]["content"] == one["text"] for one in mine), "an entry stands in another's place"
        assert not survey["findings"], survey["findings"]
    return f"{len(appended):,} appends by {WRITERS} processes into {SESSIONS} sessions, all there, all verified"
