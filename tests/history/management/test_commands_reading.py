"""`manage.py history list`, `show` and `search`."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from django.core.management import CommandError
from django.utils import timezone

from history.access import keys
from history.entries import DebugLog, SystemInstructionSet, UnknownEntry, Usage, entry_from_json
from history.models import Message, Session
from history.record import recorder
from tests.clients import Terminal, run_history, run_history_json
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db


@pytest.fixture
def looked_at(ada: Any) -> Session:
    """A session with calls, a cut answer and a branch."""
    session = recorder.start_session(owner=ada, source="relay", client="Codex", agent="op", workspace="/srv/a")
    entries = [
        SystemInstructionSet(instruction="You look after machines."),
        model_input("Why is it slow?"),
        model_output(
            "Looking.",
            tool_request("a"),
            tool_request("b"),
            usage=Usage(input_tokens=1200, output_tokens=34),
            duration=2.5,
        ),
        tool_results(tool_result("a", "load 0.4"), tool_result("b", "", status="failed", error="timed out")),
        model_output("The disk", status="interrupted", end_reason="client_gone"),
    ]
    recorder.append_many(session, entries, after=0)
    recorder.append(session, DebugLog(category="timing", message="first token late"), after=5)
    recorder.edit(session, seq=5, entry=model_output("The disk is full."))
    return session


# list


def ids(listed: Any) -> list[str]:
    return [row["id"] for row in listed["sessions"]]


def test_the_operator_sees_all_sessions_newest_first(ada: Any, bob: Any) -> None:
    first, second = create_chat(ada, "older"), create_chat(bob, "newer")
    assert ids(run_history_json("list")) == [str(second.pk), str(first.pk)]
    out, _ = run_history("list")
    lines = out.splitlines()
    assert lines[0].split() == ["session", "last", "activity", "owner", "source", "messages", "model", "state", "title"]
    assert lines[1].startswith(str(second.pk)[:8])
    assert lines[1].endswith("newer")


def test_as_a_user_one_sees_what_that_user_may_see(ada: Any, bob: Any) -> None:
    mine = create_chat(ada, "mine")
    create_chat(bob, "his")
    assert ids(run_history_json("list", "--as", "ada")) == [str(mine.pk)]


def test_the_operator_sees_hidden_and_expired_sessions_and_their_state(ada: Any) -> None:
    hidden, expired, held = create_chat(ada, "h"), create_chat(ada, "e"), create_chat(ada, "l")
    Session.objects.filter(pk=hidden.pk).update(state=Session.State.DELETED, hidden_at=timezone.now())
    Session.objects.filter(pk=expired.pk).update(expires_at=timezone.now() - timedelta(days=1))
    Session.objects.filter(pk=held.pk).update(hold=True)
    states = {row["id"]: row["state"] for row in run_history_json("list")["sessions"]}
    assert states == {str(hidden.pk): "hidden", str(expired.pk): "expired", str(held.pk): "held"}
    assert ids(run_history_json("list", "--as", "ada")) == [str(held.pk)]


def test_the_history_of_an_agent_in_a_workspace_is_a_filter(ada: Any) -> None:
    wanted = create_chat(ada, "x", agent="op", workspace="/srv/a")
    create_chat(ada, "x", agent="op", workspace="/srv/b")
    create_chat(ada, "x", agent="other", workspace="/srv/a")
    assert ids(run_history_json("list", "--agent", "op", "--workspace", "/srv/a")) == [str(wanted.pk)]
    assert ids(run_history_json("list", "--agent", "unknown", "--workspace", "/srv/a")) == []


def test_sessions_are_filtered_by_owner_key_source_model_and_time(ada: Any, bob: Any, staff: Any) -> None:
    key = keys.create(name="ci", owner=ada).api_key
    by_key = create_chat(ada, "x", "y", api_key=key, source="relay")
    by_bob = create_chat(bob, "x")
    old = create_chat(staff, "x")
    Session.objects.filter(pk=old.pk).update(last_activity_at=timezone.now() - timedelta(days=10))
    assert ids(run_history_json("list", "--key", key.prefix)) == [str(by_key.pk)]
    assert ids(run_history_json("list", "--source", "relay")) == [str(by_key.pk)]
    assert ids(run_history_json("list", "--model", "model-1")) == [str(by_key.pk)]
    assert ids(run_history_json("list", "--owner", "bob")) == [str(by_bob.pk)]
    assert ids(run_history_json("list", "--until", "2d")) == [str(old.pk)]
    assert str(old.pk) not in ids(run_history_json("list", "--since", f"{timezone.now():%Y-%m-%d}"))
    assert len(ids(run_history_json("list", "--until", f"{timezone.now():%Y-%m-%d}"))) == 3


def test_times_at_the_ends_of_the_calendar_are_answered_or_refused_in_one_line(ada: Any, settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Shanghai"
    session = create_chat(ada, "x")
    assert ids(run_history_json("list", "--until", "9999-12-31")) == [str(session.pk)]
    for arguments in (("--since", "0001-01-01"), ("--before", f"0001-01-01T00:00:00+08:00_{session.pk}")):
        with pytest.raises(CommandError):
            run_history("list", *arguments)


def test_a_list_goes_on_where_it_ended(ada: Any) -> None:
    sessions = [create_chat(ada, "x") for _ in range(5)]
    Session.objects.update(last_activity_at=timezone.now())  # the id decides where times are the same
    seen: list[str] = []
    cursor: list[str] = []
    for size in (2, 2, 1):
        page = run_history_json("list", "--limit", 2, *cursor)
        assert len(page["sessions"]) == size
        seen += ids(page)
        cursor = ["--before", page["next_before"]]
    assert page["next_before"] is None
    assert seen == sorted((str(session.pk) for session in sessions), reverse=True)


def test_a_list_in_a_pipe_says_on_stderr_how_to_go_on(ada: Any) -> None:
    create_chat(ada, "x"), create_chat(ada, "x")
    out, err = run_history("list", "--limit", 1)
    assert len(out.splitlines()) == 2
    assert "--before 20" in err
    assert run_history("list", "--owner", "unknown") == ("", "No session matches.\n")


def test_a_terminal_gets_a_table_and_no_control_characters(ada: Any) -> None:
    create_chat(ada, "\x1b[31mred\x07 alert")
    out, _ = run_history("list", out=Terminal())
    assert "┃" in out
    assert "\x1b[31m" not in out
    assert "\x07" not in out


@pytest.mark.parametrize("wrong", [["--since", "yesterday"], ["--before", "x"], ["--limit", "0"], ["--source", "fax"]])
def test_wrong_usage_of_list_is_refused(wrong: list[str]) -> None:
    with pytest.raises(CommandError):
        run_history("list", *wrong)


def test_an_unknown_viewer_is_named() -> None:
    with pytest.raises(CommandError, match="no user called 'carol'"):
        run_history("list", "--as", "carol")


# show


def test_show_speaks_in_neutral_terms(looked_at: Session) -> None:
    out, _ = run_history("show", looked_at.pk)
    for term in ["#1  SystemInstructionSet", "#2  ModelInput", "#3  ModelOutput", "#4  ToolResults", "#8  ModelOutput"]:
        assert term in out
    assert "model-1  complete  1,200 / 34 tokens  2.5 s" in out
    assert '→ sys_monitor {"metric": "cpu"}' in out
    assert "← sys_monitor success load 0.4" in out
    assert "← sys_monitor failed timed out" in out
    assert "[other versions: #5]" in out


def test_show_takes_the_beginning_of_an_id(looked_at: Session) -> None:
    assert "Why is it slow?" in run_history("show", str(looked_at.pk)[:6])[0]
    assert "Why is it slow?" in run_history("show", str(looked_at.pk).upper()[:13])[0]


def test_an_ambiguous_beginning_is_refused(ada: Any) -> None:
    for last in "12":
        recorder.start_session(owner=ada, id=UUID(f"abcdef00-0000-4000-8000-00000000000{last}"))
    with pytest.raises(CommandError, match="Several sessions begin with abcdef"):
        run_history("show", "abcdef")


@pytest.mark.parametrize("name", ["00000000", "no-such-thing", "x" * 80, "-"])
def test_an_unknown_session_is_named_and_the_exit_code_is_1(ada: Any, name: str) -> None:
    create_chat(ada, "x")
    with pytest.raises(CommandError, match="There is no session") as caught:
        run_history("show", "--", name)
    assert caught.value.returncode == 1


def test_a_stranger_finds_no_session(looked_at: Session, bob: Any) -> None:
    with pytest.raises(CommandError, match="There is no session"):
        run_history("show", looked_at.pk, "--as", "bob")


def test_show_reads_pages_branches_and_the_past(looked_at: Session) -> None:
    def seqs(*arguments: Any) -> list[int]:
        return [entry["seq"] for entry in run_history_json("show", looked_at.pk, *arguments)["entries"]]

    assert seqs() == [1, 2, 3, 4, 8]
    assert seqs("--limit", 1) == [8]
    assert seqs("--before", 3) == [1, 2]
    assert seqs("--after", 4) == [8]
    assert seqs("--leaf", 5) == [1, 2, 3, 4, 5]
    assert seqs("--at-version", 5) == [1, 2, 3, 4, 5]
    assert seqs("--all") == [1, 2, 3, 4, 5, 6, 7, 8]


def test_show_says_how_to_go_on(looked_at: Session) -> None:
    _, err = run_history("show", looked_at.pk, "--before", 4, "--limit", 1)
    assert "--before" in err
    assert "--after" in err


def test_show_all_has_logs_moves_and_abandoned_answers(looked_at: Session) -> None:
    out, _ = run_history("show", looked_at.pk, "--all")
    assert "#6  DebugLog" in out
    assert "timing: first token late" in out
    assert "#7  HeadMoved" in out
    assert "interrupted (client_gone)" in out
    assert "[not on the path to the head]" in out


def test_raw_prints_the_stored_bodies_one_a_line(looked_at: Session) -> None:
    out, _ = run_history("show", looked_at.pk, "--raw")
    stored = list(
        Message.objects.filter(session=looked_at, on_path=True).order_by("seq").values_list("body", flat=True)
    )
    assert out.split("\n")[:-1] == stored
    assert [entry_from_json(json.loads(line)).kind for line in out.splitlines()][1] == "model_input"


def test_an_unknown_kind_is_shown_as_such(ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    recorder.append(session, UnknownEntry(data={"kind": "hologram"}), after=0)
    assert "Unknown (hologram)" in run_history("show", session.pk)[0]


def test_a_leaf_that_is_not_there_is_named(looked_at: Session) -> None:
    with pytest.raises(CommandError, match="has no entry 99"):
        run_history("show", looked_at.pk, "--leaf", 99)


def test_a_result_of_ten_megabytes_is_one_line(ada: Any) -> None:
    session = create_chat(ada, "x")
    recorder.append_many(
        session, [model_output("", tool_request("a")), tool_results(tool_result("a", "z" * 10_000_000))], after=1
    )
    out, _ = run_history("show", session.pk)
    assert len(out) < 2_000
    assert "(10,000,000 bytes)" in out


def test_what_was_said_cannot_move_the_cursor(ada: Any) -> None:
    session = create_chat(ada, "a\0b\x1b[2J\ud800 \u2028", "line one\nline two")
    out, _ = run_history("show", session.pk, out=Terminal())
    assert "\x1b[2J" not in out
    assert "    line one\n" in out
    assert run_history_json("show", session.pk)["entries"][0]["entry"]["parts"][0]["text"] == "a\0b\x1b[2J\ud800 \u2028"


# Views


@pytest.fixture
def broken(ada: Any) -> Session:
    """An answer without content, which curation leaves out, and a call without a result."""
    session = create_chat(ada, "one")
    recorder.append_many(
        session, [model_output(""), model_input("two"), model_output("three", tool_request("a"))], after=1
    )
    return session


def test_the_full_view_has_everything_that_was_said(broken: Session) -> None:
    entries_shown = run_history_json("show", broken.pk, "--view", "full")["entries"]
    assert [entry["origin"] for entry in entries_shown] == [[1], [2], [3], [4]]


def test_the_curated_view_leaves_out_what_is_not_valid(broken: Session) -> None:
    entries_shown = run_history_json("show", broken.pk, "--view", "curated")["entries"]
    assert [2] not in [entry["origin"] for entry in entries_shown]


def test_the_validated_view_is_repaired_and_says_how(broken: Session) -> None:
    shown = run_history_json("show", broken.pk, "--view", "validated")
    assert shown["repairs"]
    out, err = run_history("show", broken.pk, "--view", "validated")
    assert "model_input" in out
    assert shown["repairs"][0]["text"] in err


def test_the_initial_view_is_what_a_session_starts_with(broken: Session) -> None:
    out, err = run_history("show", broken.pk, "--view", "initial")
    assert out == ""
    assert "sends nothing" in err


# search


def test_search_marks_what_it_found(ada: Any) -> None:
    session = create_chat(ada, "Is the disk slow?", "Yes.")
    out, err = run_history("search", "disk")
    assert f"{str(session.pk)[:8]} #1" in out
    assert "Is the [disk] slow?" in out
    assert "Messages found: 1" in err
    shown, _ = run_history("search", "disk", out=Terminal())
    assert "[disk]" not in shown
    assert "\x1b[1;33mdisk\x1b[0m" in shown


def test_search_gives_programs_the_pieces(ada: Any) -> None:
    session = create_chat(ada, "支付失败了")
    matches = run_history_json("search", "支付")
    assert (matches["total"], matches["total_is_exact"], matches["next_before"]) == (1, True, None)
    assert matches["hits"][0]["session"] == str(session.pk)
    assert {"text": "支付", "is_match": True} in matches["hits"][0]["snippet"]


def test_search_is_narrowed_by_filters(ada: Any, bob: Any) -> None:
    mine, his = create_chat(ada, "disk", "disk full", agent="op"), create_chat(bob, "disk")

    def matches(*filters: Any) -> set[tuple[str, int]]:
        return {(hit["session"], hit["seq"]) for hit in run_history_json("search", "disk", *filters)["hits"]}

    assert matches("--owner", "bob") == {(str(his.pk), 1)}
    assert matches("--as", "bob") == {(str(his.pk), 1)}
    assert matches("--role", "assistant") == {(str(mine.pk), 2)}
    assert matches("--session", str(mine.pk)[:8], "--role", "user") == {(str(mine.pk), 1)}
    assert matches("--has-error") == set()
    assert matches("--until", "1d") == set()


def test_search_goes_on_where_a_page_ended(ada: Any) -> None:
    session = create_chat(ada, *["disk"] * 5)
    first = run_history_json("search", "disk", "--limit", 3)
    rest = run_history_json("search", "disk", "--limit", 3, "--before", first["next_before"])
    assert [hit["seq"] for hit in [*first["hits"], *rest["hits"]]] == [5, 4, 3, 2, 1]
    assert session.version == 5


def test_facets_name_owners_and_count(ada: Any, bob: Any) -> None:
    create_chat(ada, "disk", "disk"), create_chat(bob, "disk")
    counts = {(row["facet"], row["value"]): row["count"] for row in run_history_json("search", "disk", "--facets")}
    assert counts["owner", "ada"] == 2
    assert counts["owner", "bob"] == 1
    assert counts["role", "assistant"] == 1
    assert "ada" in run_history("search", "disk", "--facets")[0]


@pytest.mark.parametrize("query", ['"', "* AND (", "", "-", "content:x NEAR("])
def test_no_query_is_an_error(ada: Any, query: str) -> None:
    create_chat(ada, "x")
    run_history("search", "--", query)
