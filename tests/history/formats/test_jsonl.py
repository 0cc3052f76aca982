"""Parley's own format: what was exported, wiped and restored is what it was, byte for byte."""

from __future__ import annotations

import json
from base64 import b64encode
from contextlib import suppress
from datetime import timedelta
from hashlib import sha256
from typing import Any
from uuid import UUID

import pytest
from django.db import connection
from django.test import override_settings
from django.utils import timezone

from history import retention, verification
from history.context.rendering import render_context
from history.context.values import ContextOptions
from history.entries import Media, ModelInput, SystemInstructionSet
from history.formats import jsonl, sources
from history.formats.base import FormatError
from history.formats.jsonl import owners, reading
from history.formats.reports import ImportOutcome
from history.models import ApiKey, AuditEvent, Blob, EarlierTry, Exchange, Message, Session, ToolCall
from history.record import exchanges, recorder, selectors
from project.accounts.models import User
from relay.models import Agent
from tests.factories import (
    context_to_bytes,
    create_chat,
    inputs_of,
    model_input,
    model_output,
    tool_request,
    tool_result,
    tool_results,
    without_guards,
)
from tests.history.formats.exported import everything, restored, rich_session, wipe

pytestmark = pytest.mark.django_db


def context_of(session: Session) -> bytes:
    options = ContextOptions(max_turns=None)
    return context_to_bytes(render_context(selectors.snapshot(session, options=options), options))


def findings() -> list[str]:
    return [str(finding) for finding in verification.verify()]


def test_a_restored_record_is_exported_as_the_same_bytes_and_verifies_clean(ada: User, bob: User) -> None:
    first = rich_session(ada, agent="assistant", workspace="/home/ada")
    fork = recorder.fork(first, at=7, owner=ada)
    create_chat(bob, "hello", "hello Bob", source="relay", client="Codex", parent=fork, parent_call="c1")
    recorder.rename(fork, title="Renamed, 重命名")
    recorder.pin(fork, pinned=True)
    before, told = everything(), context_of(first)
    wipe()
    assert {item.outcome for item in restored(before)} == {"imported"}
    assert everything() == before
    assert findings() == []
    assert context_of(Session.objects.get(pk=first.pk)) == told


def test_what_policy_took_away_is_explained_after_a_restore(ada: User) -> None:
    old = timezone.now() - timedelta(days=10)
    session = recorder.start_session(owner=ada, source="relay", created_at=old)
    recorder.append(session, SystemInstructionSet(instruction="Be kind.", at=old), after=0)
    for number in range(6):
        at = old if number < 4 else timezone.now()
        turn = [
            model_input(f"question {number}", at=at),
            model_output("", tool_request("c"), at=at),
            tool_results(tool_result("c", "no", status="failed"), at=at),
            model_output("so", at=at, status="failed"),
        ]
        recorder.append_many(session, turn, after=session.head)
    with override_settings(CHAT_HISTORY_MAX_MESSAGES=18):
        retention.purge(dry_run=False)
    with override_settings(CHAT_HISTORY_BODY_DAYS=5):
        retention.purge(dry_run=False)
    session.refresh_from_db()
    assert session.trimmed_through
    assert Message.objects.filter(session=session, body=None).exists()
    before = everything()
    calls = list(ToolCall.objects.order_by("message__seq", "index").values_list("message__seq", "name", "status"))
    wipe()
    without_guards(AuditEvent.objects.all()).delete()
    restored(before)
    again = Session.objects.get(pk=session.pk)
    assert everything() == before
    assert findings() == []
    assert calls == list(
        ToolCall.objects.order_by("message__seq", "index").values_list("message__seq", "name", "status")
    )
    names = ("message_count", "tool_call_count", "error_count", "input_tokens", "head", "head_has_open_calls")
    assert [getattr(again, name) for name in names] == [getattr(session, name) for name in names]


def test_calls_to_models_come_back_with_what_they_were_made_from(ada: User) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1, inputs={"system": "s" * 3_000}, model="m")
    exchanges.finish(exchange, model_output("hi"), end_reason="done", cost=None)
    before = everything()
    wipe()
    restored(before)
    again = Session.objects.get(pk=session.pk).exchanges.get()
    assert inputs_of(again) == {"system": "s" * 3_000}
    assert again.message is not None
    assert again.message.seq == 2
    assert everything() == before
    assert findings() == []


def test_a_call_to_a_model_that_makes_no_sense_costs_only_itself(ada: User) -> None:
    session = create_chat(ada, "hello")
    exchanges.finish(exchanges.open_exchange(session, owner=ada, after=1), model_output("hi"), end_reason="done")
    file = everything().replace(b'"attempts":1', b'"attempts":"many"')
    wipe()
    (item,) = restored(file)
    assert (item.outcome, item.entries) == ("imported", 2)
    assert "attempts" in item.notes[0].what


def test_a_restored_session_goes_on(ada: User) -> None:
    session = create_chat(ada, "hello", "hi")
    file = everything()
    wipe()
    restored(file)
    again = Session.objects.get(pk=session.pk)
    appended = recorder.append(again, model_input("and now?"), after=again.head)
    assert (appended.seq, appended.moved_head) == (3, True)
    assert [entry.text for entry in selectors.entries_of(selectors.messages_of(again).messages)] == [
        "hello", "hi", "and now?"
    ]  # fmt: skip
    assert findings() == []


def test_doing_it_again_changes_nothing_and_a_file_that_knows_more_extends(ada: User) -> None:
    session = create_chat(ada, "hello", "hi")
    short = everything()
    recorder.append(session, model_input("more"), after=session.head)
    recorder.rename(session, title="Longer")
    long = everything()
    wipe()
    assert [item.outcome for item in restored(short)] == ["imported"]
    assert [item.outcome for item in restored(short)] == ["already there"]
    assert [(item.outcome, item.entries) for item in restored(long)] == [("grown", 1)]
    assert everything() == long
    assert [item.outcome for item in restored(short)] == ["already there"]
    assert everything() == long
    assert findings() == []


def test_a_new_title_alone_is_taken_over_and_an_old_one_changes_nothing(ada: User) -> None:
    session = create_chat(ada, "hello", title="First")
    unnamed = everything()
    recorder.rename(session, title="Second")
    recorder.pin(session, pinned=True)
    named = everything()
    wipe()
    told = [restored(file)[0].outcome for file in (unnamed, named, named, unnamed)]
    assert told == ["imported", "grown", "already there", "already there"]
    assert everything() == named


def test_another_session_with_the_same_id_is_left_alone(ada: User) -> None:
    session = create_chat(ada, "hello", "hi")
    file = everything()
    wipe()
    other = recorder.start_session(owner=ada, id=session.pk)
    recorder.append(other, model_input("another session"), after=0)
    (item,) = restored(file)
    assert item.outcome == "refused"
    assert "differ from entry 1" in item.why
    assert Message.objects.get().content == "another session"


def test_link_of_an_export_of_0_1_0_is_kept_in_metadata(ada: User) -> None:
    earlier, session = create_chat(ada, "hello"), create_chat(ada, "more")
    old, new = f'"id":"{session.pk}"', f'"continues":"{earlier.pk}","id":"{session.pk}"'
    file = everything().replace(old.encode(), new.encode())
    assert new.encode() in file
    wipe()
    assert {item.outcome for item in restored(file)} == {"imported"}
    assert Session.objects.get(pk=session.pk).metadata == {"continues": str(earlier.pk)}
    assert Session.objects.get(pk=earlier.pk).metadata == {}
    assert findings() == []


def test_an_unknown_owner_is_named(ada: User) -> None:
    create_chat(ada, "hello", "hi")
    file = everything().replace(b'"owner":"ada"', b'"owner":"carol"')
    wipe()
    (item,) = restored(file)
    assert item.outcome == "refused"
    assert "carol" in item.why


def test_an_unknown_key_becomes_a_stub_that_opens_nothing(ada: User) -> None:
    key = ApiKey.objects.create(name="k", prefix="abcd1234", secret_hash=b"h" * 32, owner=ada, scopes=["relay"])
    create_chat(ada, "hello", "hi", api_key=key, source="relay")
    file = everything()
    wipe()
    restored(file)
    stub = ApiKey.objects.get()
    assert (stub.prefix, stub.owner, stub.scopes) == ("abcd1234", ada, [])
    assert stub.revoked_at is not None
    assert everything() == file


def test_one_person_does_not_fill_the_list_of_keys(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(owners, "MAX_KEYS", 2)
    for number in range(4):
        key = ApiKey.objects.create(name="k", prefix=f"abcd{number}", secret_hash=b"h" * 32, owner=ada)
        create_chat(ada, "hello", "hi", api_key=key, source="relay")
    file = everything()
    wipe()
    assert {item.outcome for item in restored(file, owner=ada)} == {"imported"}
    assert (ApiKey.objects.count(), Session.objects.filter(api_key=None).count()) == (2, 2)


def test_one_person_restores_for_themselves_alone(ada: User, bob: User) -> None:
    theirs = create_chat(bob, "bob's", "own")
    parent = create_chat(ada, "parent")
    child = create_chat(ada, "hello", "hi", parent=parent, hold=True)
    file = everything()
    retention.release(child, actor=ada, reason="for the test")
    retention.erase(child, actor=ada, reason="for the test")
    items = {item.session: item for item in restored(file, owner=ada) if item.outcome != "noted"}
    assert items[child.pk].outcome == "imported"
    assert not Session.objects.get(pk=child.pk).hold
    assert Session.objects.get(pk=theirs.pk).owner == bob
    assert theirs.pk not in items, "what is bob's in the file is a copy of ada's own"
    assert Session.objects.filter(owner=ada).count() == 3
    assert {item.outcome for item in restored(file, owner=ada)} == {"already there"}


def test_an_import_does_not_tell_what_other_users_have(ada: User, bob: User) -> None:
    """The same file has the same result, whether its ids and key prefixes are taken by another user or not."""
    key = ApiKey.objects.create(name="k", prefix="abcd1234", secret_hash=b"h" * 32, owner=ada)
    parent = create_chat(ada, "parent", api_key=key, source="relay")
    session = create_chat(ada, "hello", "hi", parent=parent, api_key=key, source="relay")
    gone = create_chat(ada, "gone")
    exchange = exchanges.open_exchange(session=session, owner=ada, model="m", after=1)
    exchanges.finish(exchange, None, end_reason="done")
    file = everything()
    retention.erase(gone, actor=ada, reason="for the test")

    def result() -> list[Any]:
        items = [(item.session, item.outcome, item.why, item.notes) for item in restored(file, owner=bob)]
        own = Session.objects.filter(owner=bob).order_by("pk")
        rows = own.values_list("pk", "parent", "api_key__name", "exchanges__pk", "message_count")
        return [items, list(rows)]

    taken = result()
    assert [outcome for _, outcome, *_ in taken[0]] == ["imported"] * 3
    assert {name for *_, name, _, _ in taken[1]} == {"abcd1234 (restored)", None}
    assert Session.objects.filter(owner=ada).count() == 2
    without_guards(AuditEvent.objects.all()).delete()
    wipe()
    ApiKey.objects.all().delete()
    assert result() == taken


def test_a_file_that_was_cut_off_is_restored_as_far_as_it_goes(ada: User) -> None:
    session = create_chat(ada, "one", "two", "three", "four")
    whole = everything()
    lines = whole.splitlines(keepends=True)
    wipe()
    (item,) = restored([*lines[:4], lines[4][:20]])
    assert item.outcome == "imported"
    assert [note.level for note in item.notes] == ["lost"]
    assert Message.objects.filter(session=session.pk).count() == 2
    assert findings() == []
    assert [(item.outcome, item.entries) for item in restored(whole)] == [("grown", 2)]
    assert everything() == whole


def test_a_damaged_session_does_not_keep_the_others_out(ada: User) -> None:
    sessions = sorted((create_chat(ada, "one", "two", "three") for _ in range(3)), key=lambda session: session.pk)
    lines = everything().splitlines(keepends=True)
    lines[8] = b'{"type":"entry","seq":"x"}\n'
    wipe()
    items = restored(lines)
    assert [item.outcome for item in items] == ["imported"] * 3
    assert [bool(item.notes) for item in items] == [False, True, False]
    assert [Message.objects.filter(session=session.pk).count() for session in sessions] == [3, 1, 3]
    assert findings() == []


def test_what_was_altered_on_the_way_is_told(ada: User) -> None:
    create_chat(ada, "one", "two")
    file = everything().replace(b'"text":"one"', b'"text":"eno"')
    wipe()
    (item,) = restored(file)
    assert "seals that do not match" in item.notes[0].what
    assert any("altered" in finding for finding in findings())


def test_other_users_cannot_make_the_record_look_altered(ada: User) -> None:
    """One's own file neither brings in entries whose seals do not hold nor adds such to what is here."""
    session = create_chat(ada, "one", "two")
    before = everything()
    recorder.append(session, model_input("three"), after=2)
    longer = everything()
    wipe()
    restored(before)
    for forged in (
        longer.replace(b'"text":"three"', b'"text":"eerht"'),
        longer.replace(b'"text":"three"', b'"text":"eerht"').replace(
            b'"seq":3', b'"digest":"%s","seq":3' % Message.objects.filter(seq=2).get().digest.hex().encode()
        ),
        b"\n".join(altered(longer, trimmed_through=2, anchor_seal="ab" * 32)),
    ):
        restored(forged, owner=ada)
        assert Message.objects.count() == 2
        assert findings() == []
    wipe()
    restored(longer.replace(b'"text":"two"', b'"text":"owt"'), owner=ada)
    assert findings() == []
    assert [message.content for message in Message.objects.all()] == ["one"]


def test_imported_entries_differ_from_recorded_ones(ada: User) -> None:
    session = create_chat(ada, "one", "two")
    before = everything()
    recorder.append(session, model_input("three"), after=2)
    longer = everything()
    wipe()
    for file in (before, longer, longer):
        restored(file, owner=ada)
    brought = Session.objects.get()
    events = AuditEvent.objects.filter(action="restore", session=brought.pk, actor=ada.pk).order_by("seq")
    assert [json.loads(event.details) for event in events] == [
        {"entries": 2, "through": 2},
        {"entries": 1, "through": 3},
    ]


def test_a_blob_whose_bytes_were_altered_is_not_taken(ada: User) -> None:
    rich_session(ada)
    lines = everything().splitlines(keepends=True)
    place = next(place for place, line in enumerate(lines) if b'"type":"blob"' in line)
    lines[place] = lines[place].replace(b'"data":"', b'"data":"AAAA')
    wipe()
    (item,) = restored(lines)
    assert "blob" in item.notes[-1].what
    assert all(len(name) == 64 for name in Blob.objects.values_list("pk", flat=True))


def test_a_large_blob_comes_in_several_lines(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("history.formats.jsonl.writing.BLOB_PART", 30_000)
    rich_session(ada)
    file = everything()
    assert file.count(b'"more":true') == 2
    wipe()
    assert [item.outcome for item in restored(file)] == ["imported"]
    assert everything() == file


def test_something_else_is_no_export() -> None:
    with pytest.raises(FormatError, match="not an export of Parley"):
        restored(b'{"messages":[]}\n')
    with pytest.raises(FormatError, match="version 9"):
        restored(b'{"type":"header","format":"parley","version":9}\n')


def test_lines_are_canonical_and_can_be_read_by_anybody(ada: User) -> None:
    rich_session(ada)
    kinds = []
    for line in everything().splitlines():
        value = json.loads(line)
        assert list(value) == sorted(value)
        kinds.append(value["type"])
    assert kinds[0] == "header"
    assert kinds[-2:] == ["session_end", "end"]
    blobs = [json.loads(line)["sha256"] for line in everything().splitlines() if b'"type":"blob"' in line]
    assert len(blobs) == len(set(blobs)) == Blob.objects.count()


def test_a_file_with_other_white_space_is_read(ada: User) -> None:
    create_chat(ada, "one", "two")
    file = everything()
    wipe()
    spaced = [json.dumps(json.loads(line), ensure_ascii=False).encode() + b"\n" for line in file.splitlines()]
    (item,) = restored(spaced)
    assert item.notes == ()
    assert everything() == file


def test_agents_travel_along_and_only_the_operator_restores_them(ada: User) -> None:
    Agent.objects.create(name="cook", instruction="Cook.", tools=["clock"], temperature=0.5)
    Agent.objects.get_or_create(name="assistant")
    file = everything(sections=True)
    Agent.objects.get(name="cook").delete()
    assert "only operators" in " ".join(item.why for item in restored(file, owner=ada))
    assert not Agent.objects.filter(name="cook").exists()
    outcomes = {item.title: item.outcome for item in restored(file)}
    assert outcomes["agent cook"] == "imported"
    assert outcomes["agent assistant"] == "already there"
    assert everything(sections=True) == file


DEEP = json.loads("[" * 900 + "]" * 900)
ID = "c0ffee00-0000-4000-8000-000000000000"
DROPPED = {"kind": "model_output", "role": "assistant", "at": "2026-01-01T00:00:00+00:00"}
ENTRY = {"type": "entry", "seq": 3, "parent": 2, "created_at": "2026-01-01T00:00:00+00:00", "seal": "00" * 32}


@pytest.mark.parametrize(
    "line",
    [
        {**ENTRY, "seq": 2**70},
        {**ENTRY, "parent": 7},
        {**ENTRY, "seal": "zz"},
        {**ENTRY, "seal": "00" * 5_000},
        {**ENTRY, "body": {"kind": "model_input"}, "salt": "ab"},
        {**ENTRY, "body": 5},
        {**ENTRY, "created_at": "yesterday"},
        {**ENTRY, "dropped": []},
        {**ENTRY, "dropped": {**DROPPED, "latency": "fast"}},
        {**ENTRY, "dropped": {**DROPPED, "input_tokens": -1}},
        {**ENTRY, "dropped": {**DROPPED, "metadata": "none"}},
        {**ENTRY, "dropped": {**DROPPED, "calls": [{"index": 0, "name": "x", "created_at": None, "status": 5}]}},
        {**ENTRY, "dropped": {**DROPPED, "calls": [{"index": 0, "name": "x", "status": "pending"}]}},
        {"type": "exchange", "id": "x"},
        {"type": "exchange", "id": ID, "ended_at": "2026-01-01", "end_reason": "done", "after": "x"},
        {"type": "blob", "sha256": "x", "data": "not base64!"},
        {"type": "session", "id": 5},
        {"type": "session", "id": ID, "owner": "ada", "source": "chat", "metadata": {"a": DEEP}},
        {"type": "something else"},
    ],
)  # fmt: skip
def test_an_unexpected_line_breaks_nothing(ada: User, line: dict[str, Any]) -> None:
    _, second = sorted((create_chat(ada, "one", "two") for _ in range(2)), key=lambda session: session.pk)
    lines = everything().splitlines(keepends=True)
    wipe()
    items = restored([*lines[:4], json.dumps(line).encode(), *lines[4:]])
    assert {item.session: item.outcome for item in items}[second.pk] == "imported"
    assert [entry.text for entry in selectors.entries_of(list(Message.objects.filter(session=second.pk)))] == [
        "one",
        "two",
    ]
    assert findings() == []


# Files written to reach what belongs to other users, or to break the server.


def altered(file: bytes, **facts: Any) -> list[bytes]:
    """The lines of an export, with other facts in those of its sessions."""
    lines = [json.loads(line) for line in file.splitlines()]
    return [json.dumps(line | (facts if line["type"] == "session" else {})).encode() for line in lines]


def test_knowing_a_hash_does_not_give_another_users_bytes(ada: User, bob: User) -> None:
    theirs = rich_session(ada)
    exchange = exchanges.open_exchange(session=theirs, owner=ada, model="m", after=1, inputs={"live": "x" * 9_000})
    exchanges.finish(exchange, None, end_reason="done")
    kept = [line for line in everything().splitlines() if b'"type":"blob"' not in line]
    mine = [line.replace(str(theirs.pk).encode(), ID.encode()) for line in kept]
    mine = [line.replace(str(exchange.pk).encode(), ID.encode()) for line in mine]
    restored(mine, owner=bob)
    assert not Blob.objects.filter(messages__session__owner=bob).exists()
    assert not Blob.objects.filter(exchanges__owner=bob).exists()
    assert not Message.objects.filter(session__owner=bob, content__contains="Be brief").exists()
    again = [line.replace(ID.encode(), ID.replace("c0", "ca").encode()) for line in mine]
    restored(again, owner=ada)
    mine_now = owners.OwnerMap(owner=ada).session_id(UUID(ID.replace("c0", "ca")))
    assert Message.objects.filter(session=mine_now, content__contains="Be brief").exists()


def test_nor_as_an_attachment_or_with_a_call_to_a_model(ada: User, bob: User) -> None:
    picture = recorder.store_blob(b"\x89PNG ada's picture", media_type="image/png")
    shown = Media(media_type="image/png", sha256=picture, name="p.png", size=19)
    theirs = recorder.start_session(owner=ada)
    recorder.append(theirs, ModelInput(parts=(shown,)), after=0)
    exchange = exchanges.open_exchange(session=theirs, owner=ada, model="m", after=1, inputs={"live": "x" * 9_000})
    exchanges.finish(exchange, None, end_reason="done")
    kept = [line for line in everything().splitlines() if b'"type":"blob"' not in line]
    call_ = next(json.loads(line) for line in kept if b'"type":"exchange"' in line)
    loose = json.dumps({**call_, "id": ID.replace("c0", "ca"), "session": None}).encode()
    mine = [line.replace(str(theirs.pk).encode(), ID.encode()) for line in [*kept[:-1], loose, kept[-1]]]
    restored([line.replace(str(exchange.pk).encode(), ID.encode()) for line in mine], owner=bob)
    assert Session.objects.filter(owner=bob, version=1).exists()
    assert Exchange.objects.filter(owner=bob).count() == 2
    assert not Blob.objects.filter(messages__session__owner=bob).exists()
    assert not Blob.objects.filter(exchanges__owner=bob).exists()


def test_the_name_of_another_users_session_cannot_be_taken(ada: User, bob: User) -> None:
    theirs, begun = create_chat(ada, "hello", "hi"), create_chat(ada, "half")
    file = everything()
    retention.erase(theirs, actor=ada, reason="for the test")
    long_ago = timezone.now() - timedelta(days=1)
    Session.objects.filter(pk=begun.pk).update(state=Session.State.INCOMPLETE, stored_at=long_ago)
    assert [item.outcome for item in restored(file, owner=bob)] == ["imported", "imported"]
    assert not Session.objects.filter(owner=bob, pk__in=[theirs.pk, begun.pk]).exists()
    assert Session.objects.get(pk=begun.pk).owner == ada
    assert {item.outcome for item in restored(file, owner=ada)} == {"imported"}


@pytest.mark.parametrize("at", ["9999-12-31T23:59:59+00:00", "0001-01-01T00:00:00+00:00"])
@pytest.mark.parametrize("name", ["last_activity_at", "created_at", "archived_at"])
def test_a_time_at_the_end_of_the_calendar_is_no_time(ada: User, name: str, at: str) -> None:
    """Only one time zone has this time: lists and purges of such a session would fail."""
    create_chat(ada, "hello", "hi", source="relay")
    lines = altered(everything(), **{name: at})
    wipe()
    assert [item.outcome for item in restored(lines, owner=ada)] == ["refused"]


def test_what_was_said_at_the_end_of_the_calendar_is_left_out(ada: User) -> None:
    session = create_chat(ada, "hello", "hi")
    file = everything()
    at = selectors.entries_of(list(Message.objects.filter(session=session, seq=2)))[0].at.isoformat().encode()
    wipe()
    lines = [line.replace(at, b"9999-12-31T23:59:59+00:00", line.startswith(b'{"body')) for line in file.splitlines()]
    assert lines != file.splitlines()
    assert [(item.entries, item.outcome) for item in restored(lines, owner=ada)] == [(1, "imported")]


def test_a_blob_without_an_end_does_not_fill_the_memory(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MAX_BLOB", 1_000)
    create_chat(ada, "hello", "hi")
    head, *rest = everything().splitlines()
    wipe()
    part = json.dumps({"type": "blob", "sha256": "00", "data": "A" * 400, "more": True}).encode()
    payloads = reading.Payloads()
    sizes = []
    for _ in range(20):
        with suppress(FormatError):
            payloads.add(json.loads(part))
        sizes.append(len(payloads._begun))
    assert max(sizes) <= 1_000
    items = restored([head, *[part] * 20, *rest])
    assert [item.outcome for item in items if item.session] == ["imported"]


def test_a_cost_that_is_no_number_costs_only_itself(ada: User) -> None:
    create_chat(ada, "hello", "hi")
    lines = altered(everything(), cost="NaN")
    wipe()
    assert [item.outcome for item in restored(lines)] == ["refused"]


def test_more_values_than_anybody_reads_are_refused_before_they_are_read(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = sorted((rich_session(ada).pk, create_chat(ada, "hello", "hi").pk))
    file = everything()
    wipe()
    monkeypatch.setattr(sources, "MAX_VALUES", 60)
    bomb = b'{"type":"note","x":[' + b"[]," * 100 + b"[]]}"
    told = restored([*file.splitlines(), bomb])
    assert {item.session for item in told if item.outcome == "imported"} == {first, second}
    assert any("too many values" in item.why for item in told)
    packed = b"[" + b"[]," * 100 + b"[]]"
    name = sha256(packed).hexdigest()
    payloads = reading.Payloads()
    payloads.add({"sha256": name, "data": b64encode(packed).decode()})
    for key in ("$json_blob", "\\u0024json_blob"):
        body = (
            f'{{"kind":"new","at":"2026-01-01T00:00:00+00:00","x":{{"$blob":"{name}"}},"tools":{{"{key}":"{name}"}}}}'
        )
        line = {**ENTRY, "body": body, "salt": "00" * 16}
        with pytest.raises(FormatError):
            reading.read_entry(line, payloads)
        with monkeypatch.context() as patched:
            patched.setattr(sources, "MAX_VALUES", 1_000)
            assert reading.read_entry(line, payloads).row.kind == "new"


ENDED: dict[str, Any] = {"started_at": timezone.now(), "ended_at": timezone.now(), "end_reason": "done"}


def test_calls_without_a_session_are_no_conversations_of_the_report(ada: User) -> None:
    """Nothing is said of them when they are taken, so nothing when they are there."""
    create_chat(ada, "hello", "hi")
    for number in range(3):
        Exchange.objects.create(owner=ada, model=f"m{number}", **ENDED)
    loose = b"".join(jsonl.JsonlWriter().loose_exchanges(Exchange.objects.all()))
    *lines, end = everything().splitlines(keepends=True)
    file = b"".join([*lines, loose, end])
    assert [item.outcome for item in restored(file, owner=ada)] == ["already there"]
    without_guards(Exchange.objects.all()).delete()
    assert [item.outcome for item in restored(file, owner=ada)] == ["already there"]
    assert Exchange.objects.count() == 3


def test_the_ids_of_earlier_tries_lead_to_a_restored_call(ada: User) -> None:
    session = create_chat(ada, "hello")
    exchange = exchanges.open_exchange(session, owner=ada, after=1)
    exchanges.finish(exchange, model_output("hi"), end_reason="done")
    here = Exchange.objects.create(owner=ada, **ENDED)
    tries: list[Any] = [{"exchange": ID}, {"exchange": "no id"}, "nothing", {"exchange": str(here.pk)}]
    Exchange.objects.filter(pk=exchange.pk).update(metadata={"retried": tries})
    file = everything()
    retention.erase(session, actor=ada, reason="for the test")
    restored(file, owner=ada)
    assert list(EarlierTry.objects.values_list("pk", "exchange__session")) == [(UUID(ID), session.pk)]


REFUSE = {
    "sqlite": [
        "CREATE TRIGGER refuse BEFORE INSERT ON history_message WHEN NEW.content = 'Refuse me.' "
        "BEGIN SELECT RAISE(ABORT, 'refused'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE unique_violation; END $$ LANGUAGE plpgsql",
        "CREATE TRIGGER refuse BEFORE INSERT ON history_message FOR EACH ROW "
        "WHEN (NEW.content = 'Refuse me.') EXECUTE FUNCTION refuse()",
    ],
}


def test_a_session_that_the_database_refuses_costs_no_other_session_of_its_batch(ada: User) -> None:
    """The others are stored again, one by one: rows that were rolled back are new ones then."""
    # Sessions of a batch are stored in the order of their ids, and a hundred rows in one statement.
    create_chat(ada, *(f"Question {number}" for number in range(60)), id=UUID(int=1, version=4))
    create_chat(ada, *(f"Another {number}" for number in range(120)), id=UUID(int=2, version=4))
    create_chat(ada, "Refuse me.", "No.", id=UUID(int=3, version=4))
    before = everything()
    wipe()
    with connection.cursor() as cursor:
        for statement in REFUSE[connection.vendor]:
            cursor.execute(statement)
    outcomes = [item.outcome for item in restored(before)]
    assert sorted(outcomes) == [ImportOutcome.IMPORTED, ImportOutcome.IMPORTED, ImportOutcome.REFUSED]
    assert sorted(Session.objects.values_list("message_count", flat=True)) == [60, 120]
