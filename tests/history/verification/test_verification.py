"""Tampering is found and named; a healthy store has no findings after any permitted change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.db import connection
from django.utils import timezone

from history import retention, verification
from history.access import audit, keys
from history.entries import DebugLog, Media, ModelInput, SystemInstructionSet, Text, UnknownEntry, Usage
from history.models import ApiKey, AuditEvent, Blob, Message, SearchRow, Session, ToolCall
from history.models.seals import digest_of, seal_of
from history.record import exchanges, recorder
from history.verification import Checkpoint, FindingSeverity, VerificationFinding
from tests.factories import (
    create_chat,
    model_input,
    model_output,
    run_before_statements,
    run_on_other_connection,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)

pytestmark = pytest.mark.django_db

LONG = "long" * 20_000
EARLIER = "2001-01-01 00:00:00+00:00" if connection.vendor == "postgresql" else "2001-01-01 00:00:00"


@pytest.fixture
def session(ada: Any) -> Session:
    """Calls, branches, moves, a debug log, a blob and an attachment: something of everything."""
    session = recorder.start_session(owner=ada)
    picture = Media(media_type="image/png", sha256=recorder.store_blob(b"a picture", media_type="image/png"))
    used = Usage(input_tokens=7, output_tokens=3)
    opening = [
        SystemInstructionSet(instruction="be kind " * 300),
        model_input("one"),
        model_output("two", tool_request("a"), tool_request("b")),
    ]
    opening += [tool_results(tool_result("a"), tool_result("b", status="failed")), model_output("three", usage=used)]
    recorder.append_many(session, opening, after=0)
    recorder.append_many(
        session, [ModelInput(parts=(Text(text="four"), picture)), model_output("", tool_request("a"))], after=5
    )
    recorder.append(session, DebugLog(message="slow today"), after=7)
    recorder.append(session, model_input("never mind"), after=7)
    recorder.move_head(session, to=3)
    recorder.append(session, tool_results(tool_result("a", "other"), tool_result("b")), after=3)
    recorder.move_head(session, to=7)
    recorder.edit(session, seq=6, entry=model_input(LONG))
    recorder.append(session, model_output("five", status="failed", error="no"), after=session.head)
    return session


def run(sql: str, *values: Any) -> None:
    with connection.cursor() as cursor:
        cursor.execute(sql, values)
        assert cursor.rowcount > 0


def tamper(session: Session, seq: int, column: str, value: Any) -> None:
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    run(f"UPDATE history_message SET {column} = %s WHERE session_id = %s AND seq = %s", value, name, seq)


def tamper_session(session: Session, column: str, value: Any) -> None:
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    run(f"UPDATE history_session SET {column} = %s WHERE id = %s", value, name)


def found_problems(**options: Any) -> list[tuple[int, str]]:
    return [(finding.seq, finding.code) for finding in verification.verify(**options)]


def first() -> VerificationFinding:
    return next(verification.verify())


def remove(session: Session, *seqs: int) -> None:
    """Delete rows by hand."""
    rows = Message.objects.filter(session=session, seq__in=seqs)
    without_guards(ToolCall.objects.filter(message__in=rows))._raw_delete(rows.db)
    SearchRow.objects.filter(message__in=rows).delete()
    without_guards(Message.blobs.through.objects.filter(message__in=rows)).delete()
    without_guards(rows)._raw_delete(rows.db)


# Healthy.


def test_a_healthy_store_gives_nothing(session: Session) -> None:
    assert session.version == 16
    assert found_problems() == []


def test_forks_exchanges_odd_texts_and_empty_sessions_are_healthy(ada: Any, session: Session) -> None:
    recorder.fork(session, at=session.head, owner=ada)
    recorder.start_session(owner=ada)
    odd = recorder.start_session(owner=ada, source="import")
    strange = UnknownEntry(data={"kind": "from_tomorrow", "at": "2026-01-01T00:00:00+00:00", "n": 1})
    entries = [model_input("nul \0 and a lone \ud800", metadata={"big": "x" * 9_000, "half": 0.5}), strange]
    recorder.append_many(odd, [*entries, model_input("", raw="", metadata={"$blob": "mine"})], after=0)
    exchange = exchanges.open_exchange(odd, owner=ada, after=3, inputs={"screen": LONG})
    exchanges.finish(exchange, model_output("half", status="interrupted"), end_reason="client_gone")
    assert found_problems() == []


def test_what_was_redacted_is_healthy(ada: Any) -> None:
    for mode in ("redacted", "no_replies"):
        key = ApiKey.objects.create(name=mode, prefix=mode, secret_hash=mode.encode(), owner=ada, recording=mode)
        session = recorder.start_session(owner=ada, api_key=key, source="relay")
        secret = "my key is sk-proj-" + "aB3dE6gH9jK2mN5pQ8sT" * 3
        recorder.append_many(
            session, [model_input(secret), model_output(secret, tool_request("a", arguments='{"q": 1}'))], after=0
        )
        assert secret not in Message.objects.get(session=session, seq=2).content
    assert found_problems() == []


def test_what_the_purge_has_done_is_healthy(ada: Any, session: Session, settings: Any) -> None:
    relayed = create_chat(ada, *["word"] * 10, source="relay")
    gone = create_chat(ada, "one", source="relay")
    Session.objects.filter(pk=gone.pk).update(last_activity_at=timezone.now() - timedelta(days=40))
    settings.CHAT_HISTORY_MAX_MESSAGES, settings.CHAT_HISTORY_BODY_DAYS = 4, 1
    report = retention.purge(dry_run=False, now=timezone.now() + timedelta(days=2))
    assert (report.expired, report.trimmed, report.dropped) == (1, 6, 4)
    relayed.refresh_from_db()
    recorder.append(relayed, model_input("more"), after=10)
    assert found_problems() == []


def test_only_the_sessions_asked_for_are_looked_at(ada: Any, session: Session) -> None:
    other = create_chat(ada, "one", "two")
    tamper(session, 2, "content", "something else")
    assert found_problems(sessions=[other]) == []
    assert found_problems(sessions=[session.pk]) == [(2, "altered_column")]


def test_progress_hears_of_every_entry(ada: Any, session: Session) -> None:
    create_chat(ada, "one", "two")
    heard: list[int] = []
    assert list(verification.verify(progress=heard.append)) == []
    assert sorted(heard) == [2, 16]


# The record itself.


def test_an_altered_body_is_named(session: Session) -> None:
    body = Message.objects.get(session=session, seq=2).body or ""
    tamper(session, 2, "body", body.replace("one", "won"))
    finding = first()
    assert (finding.session, finding.seq, finding.code) == (session.pk, 2, "altered_body")
    assert finding.is_damage
    assert "body" in finding.sentence
    assert str(session.pk) in str(finding)


def test_an_altered_digest_is_named(session: Session) -> None:
    tamper(session, 2, "digest", b"x" * 32)
    assert found_problems() == [(2, "altered_digest")]


def test_an_altered_seal_is_named_and_the_next_entry_is_not_blamed(session: Session) -> None:
    tamper(session, 2, "seal", b"x" * 32)
    assert found_problems() == [(2, "altered_seal")]


def test_a_body_and_a_digest_that_were_forged_together_break_the_seal(session: Session) -> None:
    row = Message.objects.get(session=session, seq=2)
    body = (row.body or "").replace("one", "won")
    tamper(session, 2, "body", body)
    tamper(session, 2, "digest", digest_of(row.salt or b"", body))
    assert (2, "altered_seal") in found_problems()


def test_a_whole_entry_that_was_forged_does_not_fit_the_chain_after_it(session: Session) -> None:
    before, row = Message.objects.filter(session=session, seq__in=[1, 2]).order_by("seq")
    body = (row.body or "").replace("one", "won")
    digest = digest_of(row.salt or b"", body)
    tamper(session, 2, "body", body)
    tamper(session, 2, "content", "won")
    tamper(session, 2, "digest", digest)
    tamper(session, 2, "seal", seal_of(before.seal, seq=2, parent=1, kind=row.kind, digest=digest))
    assert (3, "altered_seal") in found_problems()


ALTERED: dict[str, Any] = {
    "content": "something else", "content_chars": 1, "role": "user", "model": "model-2", "provider": "elsewhere",
    "status": "complete", "end_reason": "tired", "agent": "007", "input_tokens": 1, "output_tokens": 1,
    "usage_source": "provider", "latency": 1.5, "duration": 1.5, "request_id": "r", "is_internal": True,
    "is_state": True, "created_at": EARLIER, "metadata": '{"a": 1}',
}  # fmt: skip


@pytest.mark.parametrize("column", ALTERED)
def test_every_column_that_follows_from_the_entry_is_compared_with_it(session: Session, column: str) -> None:
    tamper(session, 16, column, ALTERED[column])
    findings = [finding for finding in verification.verify() if finding.is_damage]
    assert [(finding.seq, finding.code) for finding in findings] == [(16, "altered_column")]
    assert column in findings[0].sentence


def test_another_kind_is_an_altered_entry(session: Session) -> None:
    tamper(session, 8, "kind", "gap")
    assert {(8, "altered_seal"), (8, "altered_column")} <= set(found_problems())


def test_another_parent_is_an_altered_entry(session: Session) -> None:
    tamper(session, 5, "parent_seq", 3)
    assert (5, "altered_seal") in found_problems()


def test_a_missing_entry_in_the_middle_is_named_and_so_is_who_hangs_on_it(session: Session) -> None:
    remove(session, 4)
    assert {(4, "missing_entry"), (5, "dangling_parent")} <= set(found_problems())
    assert first().seq == 4


def test_missing_newest_entries_are_named(session: Session) -> None:
    remove(session, 15, 16)
    finding = first()
    assert (finding.seq, finding.code) == (15, "missing_entry")
    assert "16" in finding.sentence


def test_a_session_that_was_set_back_with_its_entries_knows_another_seal(session: Session) -> None:
    remove(session, 16)
    tamper_session(session, "head", 15)
    tamper_session(session, "version", 15)
    assert (15, "altered_end") in found_problems()


def test_a_parent_that_cannot_be_followed_is_dangling(session: Session) -> None:
    tamper(session, 9, "parent_seq", 8)
    assert {(9, "altered_seal"), (9, "dangling_parent")} <= set(found_problems())


def test_a_body_that_is_gone_without_an_audit_event_is_missing(session: Session) -> None:
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    run(
        "UPDATE history_message SET body = NULL, salt = NULL, content = '', dropped_at = %s"
        " WHERE session_id = %s AND seq = 5",
        EARLIER,
        name,
    )
    assert (5, "missing_body") in found_problems()


def test_an_entry_beyond_what_the_audit_event_says_is_missing(ada: Any, settings: Any) -> None:
    session = create_chat(ada, *["word"] * 4, source="relay")
    settings.CHAT_HISTORY_BODY_DAYS = 1
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=2))
    recorder.append_many(session, [model_input("young"), model_output("younger")], after=4)
    assert found_problems() == []
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    run(
        "UPDATE history_message SET body = NULL, salt = NULL, dropped_at = %s WHERE session_id = %s AND seq = 6",
        EARLIER,
        name,
    )
    assert {(6, "missing_body"), (6, "text_left")} <= set(found_problems())


def test_an_unannounced_trim_is_found(ada: Any) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    seal = Message.objects.get(session=session, seq=2).seal
    remove(session, 1, 2)
    tamper_session(session, "trimmed_through", 2)
    tamper_session(session, "anchor_seal", seal)
    assert (2, "untold_trim") in found_problems()


def test_an_instruction_before_the_anchor_cannot_be_exchanged(ada: Any, settings: Any) -> None:
    session = recorder.start_session(owner=ada, source="relay")
    recorder.append_many(
        session,
        [
            SystemInstructionSet(instruction="be kind"),
            model_input("one"),
            model_output("two"),
            model_input("three"),
            model_output("four"),
        ],
        after=0,
    )
    settings.CHAT_HISTORY_MAX_MESSAGES = 2
    assert retention.purge(dry_run=False).trimmed == 2
    body = Message.objects.get(session=session, seq=1).body or ""
    tamper(session, 1, "body", body.replace("kind", "mean"))
    assert found_problems()[0] == (1, "altered_body")
    tamper(session, 1, "digest", b"x" * 32)
    assert found_problems()[0] == (1, "altered_entry")


def test_a_missing_blob_is_named_by_the_entry_that_needs_it(session: Session) -> None:
    without_guards(Message.blobs.through.objects.filter(message__seq=15)).delete()
    without_guards(Blob.objects.filter(size__gt=50_000)).delete()
    assert found_problems()[0] == (15, "broken_blob")


@pytest.mark.parametrize(("seq", "size"), [(15, 80_000), (6, 9)])
def test_an_altered_blob_is_named_whether_text_or_attachment(session: Session, seq: int, size: int) -> None:
    run("UPDATE history_blob SET data = %s WHERE size = %s", b"x" * size, size)
    assert (seq, "broken_blob") in found_problems()


def test_what_a_call_was_made_from_is_looked_at_too(ada: Any, session: Session) -> None:
    exchanges.open_exchange(session, owner=ada, inputs={"screen": "s" * 70_001})
    run("UPDATE history_blob SET data = %s WHERE size = 70001", b"x")
    assert found_problems() == [(0, "broken_blob")]


def test_flaws_of_the_audit_chain_itself_are_told_first(ada: Any, session: Session) -> None:
    retention.hide(session, actor=ada, reason="mine")
    retention.unhide(session, actor=ada)
    retention.hide(session, actor=ada)
    run("UPDATE history_auditevent SET reason = 'yours' WHERE seq = 1")
    assert found_problems()[0] == (1, "audit_altered")
    run("DELETE FROM history_auditevent WHERE seq = 1")
    assert found_problems()[0] == (1, "audit_missing")


# What was made from it.


def projections(*, of: int | None = None) -> list[tuple[int, str]]:
    findings = list(verification.verify())
    assert {finding.severity for finding in findings} == {FindingSeverity.PROJECTION}
    return [(finding.seq, finding.code) for finding in findings if of is None or finding.seq == of]


def test_a_wrong_mark_on_the_path_is_found(session: Session) -> None:
    tamper(session, 4, "on_path", False)
    assert projections() == [(4, "wrong_path")]


def test_a_wrong_head_is_found(session: Session) -> None:
    tamper_session(session, "head", 5)
    assert projections() == [(5, "wrong_head")]


def test_a_wrong_move_is_found(session: Session) -> None:
    tamper(session, 9, "moved_head", False)
    assert projections() == [(9, "wrong_move")]


@pytest.mark.parametrize("name", ["message_count", "tool_call_count", "error_count", "input_tokens", "output_tokens"])
def test_a_wrong_counter_is_found(session: Session, name: str) -> None:
    tamper_session(session, name, 999)
    assert projections() == [(16, "wrong_counter")]


@pytest.mark.parametrize(
    ("column", "value"), [("result", "x"), ("status", "success"), ("arguments", "{}"), ("name", "x")]
)
def test_a_wrong_row_of_a_tool_call_is_found(session: Session, column: str, value: str) -> None:
    name = Session._meta.pk.get_db_prep_value(session.pk, connection)
    run(f'UPDATE history_toolcall SET {column} = %s WHERE session_id = %s AND "index" = 1', value, name)
    assert projections() == [(3, "wrong_call")]


def test_a_missing_row_of_a_tool_call_is_found(session: Session) -> None:
    without_guards(ToolCall.objects.filter(message__seq=7)).delete()
    assert projections() == [(7, "wrong_call")]


def test_missing_search_rows_are_counted(session: Session) -> None:
    SearchRow.objects.filter(message__seq__in=[2, 5]).delete()
    (finding,) = verification.verify()
    assert (finding.seq, finding.code, finding.is_damage) == (2, "wrong_search_rows", False)
    assert finding.sentence.startswith("2 ")


def test_a_missing_link_to_a_blob_is_found(session: Session) -> None:
    without_guards(Message.blobs.through.objects.filter(message__seq=6)).delete()
    assert projections() == [(6, "wrong_link")]


def test_a_wrong_fingerprint_is_found_once(session: Session) -> None:
    tamper(session, 2, "fingerprint", b"x" * 16)
    assert projections() == [(2, "wrong_fingerprint")]


def test_a_session_that_says_more_texts_were_dropped_than_were_is_found_and_put_right(session: Session) -> None:
    tamper_session(session, "dropped_through", 2)
    assert projections() == [(2, "undropped_text")]  # entry 1 is an instruction, and those may hold on
    verification.rebuild(session)
    assert found_problems() == []


# Made anew.

MADE = {
    Session: ("head", "head_fingerprint", "head_has_open_calls", "message_count", "tool_call_count", "error_count",
              "input_tokens", "output_tokens"),
    Message: ("seq", "on_path", "moved_head"),
    ToolCall: ("message__seq", "index", "call_id", "name", "arguments", "result", "status", "error", "created_at",
               "started_at", "duration", "answered_by", "answer_index"),
    SearchRow: ("id", "message__seq", "start", "end", "tokens"),
}  # fmt: skip


def made() -> Iterator[list[Any]]:
    return (sorted(map(repr, model._default_manager.values_list(*columns))) for model, columns in MADE.items())


def test_projections_made_anew_are_the_same_rows(session: Session) -> None:
    before = list(made())
    without_guards(Message.objects.all()).update(on_path=False, moved_head=False)
    Session.objects.update(
        head=0, head_fingerprint=b"", message_count=9, tool_call_count=9, error_count=9, input_tokens=9
    )
    without_guards(ToolCall.objects.all()).update(
        status="pending", answered_by=None, answer_index=None, name="", result=""
    )
    SearchRow.objects.all().delete()
    assert len(found_problems()) > 10
    verification.rebuild(session)
    assert list(made()) == before
    assert (session.head, session.message_count) == (16, 5)
    assert found_problems() == []


READING = 'SELECT "history_message"."id"'


def shaken(ada: Any) -> Session:
    """A session whose projections are all wrong."""
    session = create_chat(ada, *["word"] * 500)
    talk = [
        entry for _ in range(100) for entry in (model_output("", tool_request("a")), tool_results(tool_result("a")))
    ]
    recorder.append_many(session, talk, after=500)
    without_guards(Message.objects.all()).update(on_path=False)
    Session.objects.update(message_count=9, tool_call_count=9)
    without_guards(ToolCall.objects.filter(message__seq__gt=650)).update(name="", result="")
    without_guards(ToolCall.objects.filter(message__seq=501)).update(
        answered_by=None, answer_index=None, status="pending"
    )
    without_guards(ToolCall.objects.filter(message__seq=503)).update(
        answered_by=502
    )  # holds the place of the one before it
    return session


@pytest.mark.django_db(transaction=True)
def test_others_write_while_projections_are_made_anew_and_lose_nothing_by_it(ada: Any) -> None:
    session, other = shaken(ada), create_chat(ada, "elsewhere")

    def write() -> None:
        for one in (other, session) if other.version == 3 else (other,):
            recorder.append(one, model_input("meanwhile"), after=one.head)

    def write_in_between(place: int) -> None:
        if not connection.in_atomic_block:
            run_on_other_connection(write)

    with run_before_statements(READING, write_in_between):
        verification.rebuild(session)
    assert session.version == 701
    assert other.version > 7  # it had to begin again once, and no writer waited for it
    assert found_problems() == []


@pytest.mark.django_db(transaction=True)
def test_projections_that_another_process_made_anew_meanwhile_stay_right(ada: Any) -> None:
    session = shaken(ada)
    without_guards(Message.objects.filter(seq__lt=150)).update(moved_head=False)

    def rebuild_as_well(place: int) -> None:
        if place == 1:  # the first page was read before, with its wrong marks
            run_on_other_connection(lambda: verification.rebuild(Session.objects.get(pk=session.pk)))

    with run_before_statements(READING, rebuild_as_well):
        verification.rebuild(session)
    assert found_problems() == []


@pytest.mark.django_db(transaction=True)
def test_projections_of_a_session_that_never_rests_are_made_anew_all_the_same(ada: Any) -> None:
    session = shaken(ada)

    def write(place: int) -> None:
        if not connection.in_atomic_block:
            current = Session.objects.get(pk=session.pk)
            recorder.append(current, model_input(f"meanwhile {place}"), after=current.head)

    with run_before_statements(READING, write):
        verification.rebuild(session)
    assert session.version > 702
    assert found_problems() == []


# Checkpoints.


def test_a_checkpoint_is_json_and_nothing_is_missing_since(ada: Any, session: Session) -> None:
    known = verification.checkpoint()
    assert (known.entries, known.last_message_id) == (16, Message.objects.latest("pk").pk)
    again = Checkpoint.from_json(json.loads(json.dumps(known.to_json())))
    assert again == known
    recorder.append(session, model_input("more"), after=16)
    create_chat(ada, "another")
    assert found_problems(checkpoint=again) == []
    assert verification.checkpoint().root != known.root


def test_the_root_depends_on_nothing_but_the_record(session: Session) -> None:
    assert verification.checkpoint() == verification.checkpoint()


def test_a_session_that_vanished_is_known_from_the_checkpoint(ada: Any, session: Session) -> None:
    other = create_chat(ada, "one")
    known = verification.checkpoint()
    remove(other, 1)
    without_guards(Session.objects.filter(pk=other.pk)).delete()
    assert [(item.session, item.code) for item in verification.verify(checkpoint=known) if item.session] == [
        (other.pk, "missing_session")
    ]


def test_newest_entries_cut_off_cleanly_are_known_from_the_checkpoint(session: Session) -> None:
    known = verification.checkpoint()
    recorder.append(session, model_input("later"), after=16)
    remove(session, 16, 17)
    seal = "(SELECT seal FROM history_message WHERE seq = 15)"
    run(f"UPDATE history_session SET head = 15, version = 15, last_seal = {seal}")
    run("UPDATE history_session SET error_count = 1, message_count = 5")
    assert not any(finding.is_damage for finding in verification.verify())
    assert (16, "missing_entry") in found_problems(checkpoint=known)


def test_history_that_was_written_anew_is_known_from_the_checkpoint(ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    known = verification.checkpoint()
    remove(session, 1, 2)
    Session.objects.update(version=0, head=0, last_seal=b"", head_fingerprint=b"", message_count=0, title="")
    session.refresh_from_db()
    recorder.append_many(session, [model_input("one"), model_output("three")], after=0)
    assert found_problems() == []
    assert (2, "rewritten") in found_problems(checkpoint=known)


def test_what_policy_removed_since_is_not_missing(ada: Any, session: Session, settings: Any) -> None:
    erased, relayed = create_chat(ada, "one"), create_chat(ada, *["word"] * 6, source="relay")
    known = verification.checkpoint()
    retention.erase(erased, actor=ada, reason="asked to")
    settings.CHAT_HISTORY_MAX_MESSAGES = 2
    retention.purge(dry_run=False)
    recorder.append_many(relayed, [model_input("more"), model_output("and more")], after=6)
    retention.purge(dry_run=False)
    relayed.refresh_from_db()
    assert relayed.trimmed_through == 6
    assert found_problems(checkpoint=known) == []


def test_an_audit_chain_that_was_cut_off_is_known_from_the_checkpoint(ada: Any, session: Session) -> None:
    audit.record("read", actor=ada.pk, session=session.pk)
    known = verification.checkpoint()
    without_guards(AuditEvent.objects.all()).delete()
    assert found_problems() == []
    assert (1, "audit_cut") in found_problems(checkpoint=known)


def test_a_checkpoint_that_was_altered_says_so(session: Session) -> None:
    value = verification.checkpoint().to_json()
    value["sessions"][0][1] = 15
    value["sessions"][0][2] = Message.objects.get(session=session, seq=15).seal.hex()
    assert found_problems(checkpoint=Checkpoint.from_json(value)) == [(0, "altered_checkpoint")]
    with pytest.raises(ValueError, match="not a valid checkpoint"):
        Checkpoint.from_json({"entries": 1})


# The session's own columns.


@pytest.mark.parametrize(
    ("columns", "code"),
    [
        ({"hold": True}, "altered_hold"),
        ({"state": "deleted", "hidden_at": timezone.now()}, "altered_deletion"),
        ({"state": "removing", "hidden_at": timezone.now()}, "altered_deletion"),
        ({"title": "something else"}, "altered_title"),
        ({"title": ""}, "altered_title"),
        ({"source": "relay"}, "altered_owner"),
        ({"given_title": b"x" * 16}, "altered_owner"),
    ],
)
def test_a_column_of_a_session_that_was_changed_by_hand_is_found(
    session: Session, columns: dict[str, Any], code: str
) -> None:
    assert found_problems() == []
    Session.objects.filter(pk=session.pk).update(**columns)
    assert (0, code) in found_problems()


def test_another_owner_is_found_even_with_a_seal_that_fits(ada: Any, bob: Any, session: Session) -> None:
    known = verification.checkpoint()
    Session.objects.filter(pk=session.pk).update(owner=bob)
    assert (0, "altered_owner") in found_problems()
    session.refresh_from_db()
    Session.objects.filter(pk=session.pk).update(begin_seal=session.expected_begin_seal())
    assert (0, "altered_owner") not in found_problems()
    assert (0, "altered_owner") in found_problems(checkpoint=known)


def test_a_checkpoint_of_an_earlier_version_is_still_understood(session: Session) -> None:
    value = verification.checkpoint().to_json()
    value["sessions"] = [standing[:3] for standing in value["sessions"]]
    value["root"] = sha256(" ".join(map(str, value["sessions"][0])).encode() + b"\n").hexdigest()
    assert found_problems(checkpoint=Checkpoint.from_json(value)) == []


def test_a_hold_or_deletion_that_the_audit_chain_knows_cannot_be_undone_untold(ada: Any, session: Session) -> None:
    retention.hold(session, actor=ada, reason="a lawsuit")
    retention.hide(session, actor=ada)
    assert found_problems() == []
    Session.objects.filter(pk=session.pk).update(
        state=Session.State.DELETED, hidden_at=timezone.now() - timedelta(days=1)
    )
    assert found_problems() == [(0, "altered_deletion")]
    Session.objects.filter(pk=session.pk).update(state=Session.State.OPEN, hidden_at=None, hold=False)
    assert found_problems() == [(0, "altered_hold"), (0, "altered_deletion")]


def test_a_title_set_by_hand_is_an_audit_event_without_the_words(ada: Any, session: Session) -> None:
    recorder.rename(session, title="My plans for Friday")
    event = AuditEvent.objects.get(action="rename")
    assert (event.actor, event.session) == (ada.pk, session.pk)
    assert "Friday" not in event.details
    assert found_problems() == []
    Session.objects.filter(pk=session.pk).update(title="My plans for Monday")
    assert found_problems() == [(0, "altered_title")]


def test_titles_that_a_session_began_with_are_known(ada: Any) -> None:
    session = create_chat(ada, "hello", title="From a file")
    fork = recorder.fork(session, at=1, owner=ada)
    assert found_problems() == []
    Session.objects.filter(pk=fork.pk).update(title="hello")
    assert found_problems() == [(0, "altered_title")]


def test_a_title_that_was_dropped_with_its_texts_is_no_finding(ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, keep_body_days=1).api_key
    create_chat(ada, "hello", "hi", source="relay", api_key=key)
    retention.purge(dry_run=False, now=timezone.now() + timedelta(days=3))
    assert Session.objects.get().title == ""
    assert found_problems() == []


def test_an_expiry_that_was_moved_is_found_and_made_anew(ada: Any) -> None:
    session = create_chat(ada, "hello", source="relay")
    Session.objects.update(expires_at=timezone.now())
    [finding] = verification.verify()
    assert (finding.code, finding.severity) == ("altered_expiry", FindingSeverity.PROJECTION)
    verification.rebuild(session)
    assert found_problems() == []
