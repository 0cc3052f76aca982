"""One person's data: all of it in one archive, and nothing of it left in any table when it was erased."""

from __future__ import annotations

import json
import stat
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.contenttypes.models import ContentType
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.utils import timezone

from history import retention
from history.access import audit, keys
from history.entries import Media, ModelInput, Text
from history.errors import HistoryError
from history.importing import jobs
from history.models import ApiKey, AuditEvent, Blob, Exchange, ImportJob, Session
from history.privacy import erase, erase_person, export_person
from history.record import recorder
from history.retention.removal import erase_everything_of
from history.transcripts import share_links
from history.verification import verify
from project.accounts import links
from project.accounts.models import User
from relay import privacy as relay_persons
from relay.models import Allowance, IssuedId, KeyUse, NamedReply, QueuedMessage, Run, Spending
from tests.clients import run_history, run_history_json
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db

# Said by Ada, each in another place.
WORDS = (
    *("zebrafinch", "quokkatext", "narwhalarg", "ocelotresult", "lemurtitle", "axolotlqueue", "capybarakey"),
    *("pangolinimport", "okapiblob", "tapirmail", "ibexloose", "wombatname", "gibbonreply"),
)
WHY = "Art. 17"


@pytest.fixture
def adas(ada: User, staff: User) -> list[Session]:
    """Ada has used everything there is."""
    ada.username, ada.email, ada.first_name = "wombatname", "tapirmail@example.org", "Tapirmail"
    ada.save()
    key = keys.create(name="capybarakey", owner=ada).api_key
    chat = create_chat(ada, "zebrafinch hello", "quokkatext answer", title="lemurtitle", api_key=key)
    recorder.append_many(
        chat,
        [
            model_output("", tool_request("a", arguments='{"q": "narwhalarg"}')),
            tool_results(tool_result("a", "ocelotresult")),
        ],
        after=chat.head,
    )
    blob = recorder.store_blob(b"okapiblob " * 40, media_type="text/plain")
    file = Media(media_type="text/plain", sha256=blob, size=400, name="okapiblob.txt")
    recorder.append(chat, ModelInput(parts=(Text(text="see"), file)), after=chat.head)
    hidden = create_chat(ada, "zebrafinch in the trash")
    retention.hide(hidden, actor=ada)
    loose = Exchange.objects.create(owner=ada, metadata={"note": "ibexloose"})
    Exchange.objects.filter(pk=loose.pk).update(ended_at=timezone.now(), end_reason="done")
    share_links.share(chat, by=ada)
    QueuedMessage.objects.create(session=chat, owner=ada, text="axolotlqueue")
    Allowance.objects.create(user=ada, tokens_per_day=5)
    Spending.objects.create(user=ada, day=timezone.now().date(), messages=3)
    KeyUse.objects.create(key=key, day=timezone.now().date(), requests=2)
    IssuedId.objects.create(key=key, name="gibbonreply")
    NamedReply.objects.create(key=key, name="gibbonreply", session=chat, seq=2)
    links.create_link(ada)
    job = jobs.create(ada, [("pangolinimport.zip", 4)])
    jobs.add_piece(job, place=0, offset=0, content=b"data")
    user_type = ContentType.objects.get_for_model(User)
    document = {"content_type": user_type, "object_id": str(ada.pk), "object_repr": "wombatname"}
    LogEntry.objects.create(user=staff, action_flag=CHANGE, **document)
    return [chat, hidden]


def words_in_the_database() -> dict[str, list[str]]:
    """Each planted word that stands anywhere in any table, the tables of the search engine included."""
    tables: dict[str, list[str]] = {}
    with connection.cursor() as cursor:
        for table in _tables(cursor):
            cursor.execute(f'SELECT * FROM "{table}"')
            stored = b"\0".join(_bytes(value) for row in cursor.fetchall() for value in row).lower()
            for word in WORDS:
                if word.encode() in stored:
                    tables.setdefault(word, []).append(table)
    return tables


def _tables(cursor: Any) -> list[str]:
    if connection.vendor == "sqlite":
        cursor.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        return [name for (name,) in cursor.fetchall() if not name.startswith("sqlite_")]
    return connection.introspection.table_names(cursor)


def _bytes(value: Any) -> bytes:
    return bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode("utf-8", "replace")


def test_every_table_that_refers_to_users_or_keys_is_registered() -> None:
    """A new table that belongs to people is a holding, or named here with its reason."""
    known = {"Session", "Exchange", "ApiKey", "ImportJob"}  # the record's own, removed by `erasing` itself
    counted_anew = {"DayTally"}
    bookkeeping = {"LogEntry", "User_groups", "User_user_permissions"}  # stripped or cleared with the account
    held = {model._meta.object_name for model, _path in relay_persons.TABLES.values()} | {"SignInLink"}
    refer = {
        model.__name__
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.concrete_fields
        if field.related_model in (User, ApiKey)
    }
    assert refer <= known | counted_anew | bookkeeping | held


# Erasing


def test_after_an_erasure_no_word_of_theirs_stands_in_any_table(ada: User, adas: list[Session]) -> None:
    assert set(words_in_the_database()) == set(WORDS)
    receipt = erase_person(ada, reason=WHY)
    assert words_in_the_database() == {}
    assert receipt.removed["sessions"] == 2
    assert receipt.removed["messages"] == 6
    assert receipt.removed["blobs"] == 1
    assert receipt.removed["exchanges"] == 1
    assert (receipt.removed["waiting_messages"], receipt.removed["sign_in_links"], receipt.removed["imports"]) == (
        1,
        1,
        1,
    )


def test_attachments_are_not_served_after_an_erasure(ada: User, staff: User, adas: list[Session]) -> None:
    sha256 = Blob.objects.get(messages__session=adas[0]).pk
    token = share_links.token_of(share_links.share(adas[0], by=ada))
    addresses = [f"/attachments/{adas[0].pk}/{sha256}", f"/shared/{token}/attachments/{sha256}"]
    reader, stranger, admin = Client(), Client(), Client()
    reader.force_login(ada)
    admin.force_login(staff)
    assert [reader.get(address).status_code for address in addresses] == [200, 200]
    # Another user has the same file: its bytes stay, and are theirs alone.
    other = create_chat(staff, "mine", "yours")
    file = Media(media_type="text/plain", sha256=sha256, size=400)
    recorder.append(other, ModelInput(parts=(file,)), after=other.head)
    erase_person(ada, reason=WHY)
    for address in addresses:
        answers = [client.get(address) for client in (reader, stranger, admin)]
        assert b"okapiblob" not in b"".join(answer.content for answer in answers)
        assert {answer.status_code for answer in answers} <= {302, 404, 410}
    assert admin.get(f"/attachments/{other.pk}/{sha256}").status_code == 200


def test_what_is_others_stays(ada: User, bob: User, adas: list[Session]) -> None:
    bobs = create_chat(bob, "mine", "yours")
    blob = recorder.store_blob(b"okapiblob " * 40, media_type="text/plain")
    file = Media(media_type="text/plain", sha256=blob, size=400)
    recorder.append(bobs, ModelInput(parts=(file,)), after=bobs.head)
    erase_person(ada, reason=WHY)
    assert Session.objects.get().pk == bobs.pk
    assert Blob.objects.filter(pk=blob).exists()
    bob.refresh_from_db()
    assert bob.is_active


def test_what_is_held_stays_and_is_named_in_the_receipt(ada: User, staff: User, adas: list[Session]) -> None:
    retention.hold(adas[0], actor=staff, reason="a court asks")
    receipt = erase_person(ada, reason=WHY)
    assert [(one["session"], one["why"]) for one in receipt.kept] == [(adas[0].pk, "under hold")]
    assert list(Session.objects.values_list("pk", flat=True)) == [adas[0].pk]
    assert "zebrafinch" in words_in_the_database()
    retention.release(adas[0], actor=staff, reason="over")
    again = erase_person(User.objects.get(pk=ada.pk), reason=WHY)
    assert (again.removed["sessions"], again.kept) == (1, [])
    assert words_in_the_database() == {}


def test_the_erased_account_cannot_be_used(client: Client, ada: User, adas: list[Session]) -> None:
    client.force_login(ada)
    link = share_links.links_of(adas[0])[0]
    token = share_links.token_of(link)
    receipt = erase_person(ada, reason=WHY)
    person = User.objects.get(pk=ada.pk)
    assert (person.username, person.email, person.get_full_name()) == (f"erased-{ada.pk}", "", "")
    assert receipt.person == {"id": ada.pk, "username": "wombatname", "now": f"erased-{ada.pk}"}
    assert not person.is_active
    assert not person.has_usable_password()
    assert client.get("/history/").status_code == 302
    assert share_links.find_share(str(token)) is None
    key = ApiKey.objects.get(owner=ada)
    assert key.revoked_at is not None
    assert (key.name, key.scopes) == ("erased", [])


def test_it_is_in_the_audit_chain_with_numbers_only_and_the_record_is_healthy(ada: User, adas: list[Session]) -> None:
    receipt = erase_person(ada, reason=WHY)
    events = list(AuditEvent.objects.order_by("seq"))
    assert [event.action for event in events][-1] == "person.erased"
    assert events[-1].seq == receipt.checkpoint["audit_seq"]
    assert bytes(events[-1].seal).hex() == receipt.checkpoint["audit_seal"]
    assert json.loads(events[-1].details)["person"] == ada.pk
    assert list(audit.flaws()) == []
    assert list(verify()) == []


def test_an_answer_on_its_way_is_stopped_before_anything_is_removed(
    ada: User, adas: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = Run.objects.create(session=adas[0], owner=ada)
    seen = []

    def watched(*arguments: Any, **options: Any) -> Any:
        seen.append(Run.objects.get(pk=run.pk).stop_requested_at)
        return erase_everything_of(*arguments, **options)

    monkeypatch.setattr(erase, "erase_everything_of", watched)
    erase_person(ada, reason=WHY)
    assert seen[0] is not None
    assert not Run.objects.filter(pk=run.pk).exists()


def test_the_files_of_an_import_go_too(ada: User, adas: list[Session]) -> None:
    folder = jobs.folder_of(ImportJob.objects.get())
    assert folder.exists()
    erase_person(ada, reason=WHY)
    assert not folder.exists()


def test_the_last_who_can_let_others_in_is_not_erased(staff: User) -> None:
    with pytest.raises(HistoryError, match="make another user staff first"):
        erase_person(staff, reason=WHY)
    assert User.objects.get().username == "grace"


# Exporting


def test_everything_is_in_one_zip_with_a_manifest_that_vouches_for_it(
    ada: User, bob: User, adas: list[Session], tmp_path: Path
) -> None:
    create_chat(bob, "not hers")
    path = tmp_path / "ada.zip"
    manifest = export_person(ada, path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with zipfile.ZipFile(path) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    stored = b"".join(whole.values()).lower()
    planted = [word for word in WORDS if word != "okapiblob"]
    assert [word for word in planted if word.encode() not in stored] == []
    assert b"not hers" not in stored
    document = json.loads(whole["manifest.json"])
    assert {file["name"] for file in document["files"]} == set(whole) - {"manifest.json"}
    counts = {file["name"]: file["rows"] for file in manifest["files"]}
    assert counts["sessions.jsonl"] == 2
    assert (
        counts["keys.jsonl"] == counts["share_links.jsonl"] == counts["allowance.jsonl"] == counts["profile.jsonl"] == 1
    )


def test_no_secret_is_given_out(ada: User, adas: list[Session], tmp_path: Path) -> None:
    export_person(ada, tmp_path / "ada")
    stored = b"".join(path.read_bytes() for path in (tmp_path / "ada").iterdir())
    key, link = ApiKey.objects.get(), share_links.links_of(adas[0])[0]
    for secret in (ada.password, bytes(key.secret_hash).hex(), bytes(link.token_hash).hex()):
        assert secret.encode() not in stored
    assert ada.sign_in_links.get().token_hash.encode() not in stored


def test_the_sessions_can_be_restored(ada: User, adas: list[Session], tmp_path: Path) -> None:
    export_person(ada, tmp_path / "ada")
    before = run_history("export", str(adas[0].pk))[0]
    retention.erase(adas[0], actor=None, reason=WHY)
    run_history("import", tmp_path / "ada" / "sessions.jsonl", "--owner", "wombatname")
    assert run_history("export", str(adas[0].pk))[0].splitlines()[:-1] == before.splitlines()[:-1]


def test_events_about_them_are_theirs_and_no_others(ada: User, bob: User, adas: list[Session], tmp_path: Path) -> None:
    retention.erase(create_chat(ada, "gone"), actor=None, reason="hers")
    retention.erase(create_chat(bob, "gone"), actor=None, reason="his")
    export_person(ada, tmp_path / "ada")
    events = [json.loads(line) for line in (tmp_path / "ada" / "audit_events.jsonl").read_text().splitlines()]
    assert "hers" in [event["reason"] for event in events]
    assert "his" not in [event["reason"] for event in events]
    assert {"share", "hide", "key.created"} <= {event["action"] for event in events}


# The command


def test_without_yes_nothing_is_erased(ada: User, adas: list[Session]) -> None:
    document = run_history_json("person", "wombatname", "--erase")
    assert document["dry_run"]
    assert document["would_remove"] == {"sessions": 2, "entries": 6, "exchanges": 1, "keys": 1}
    assert "Add --yes" in run_history("person", "wombatname", "--erase", "--reason", WHY)[1]
    assert Session.objects.count() == 2


def test_with_yes_there_is_a_receipt(ada: User, adas: list[Session], tmp_path: Path) -> None:
    receipt = tmp_path / "receipt.json"
    with pytest.raises(CommandError, match="reason is required"):
        run_history("person", "wombatname", "--erase", "--yes")
    out = run_history("person", "wombatname", "--erase", "--yes", "--reason", WHY, "--receipt", receipt)[0]
    assert f"The account is now called erased-{ada.pk}." in out
    document = json.loads(receipt.read_text())
    assert document["removed"]["sessions"] == 2
    assert document["reason"] == WHY
    assert not Session.objects.exists()


def test_a_receipt_that_cannot_be_written_is_found_out_before_anything_is_erased(
    ada: User, adas: list[Session], tmp_path: Path
) -> None:
    with pytest.raises(CommandError, match="cannot be written"):
        run_history(
            "person", "wombatname", "--erase", "--yes", "--reason", WHY, "--receipt", tmp_path / "no" / "receipt.json"
        )
    assert Session.objects.count() == 2


def test_an_export_is_told_file_by_file_and_never_overwrites(ada: User, adas: list[Session], tmp_path: Path) -> None:
    out = run_history("person", "wombatname", "--export", tmp_path / "ada.zip")[0]
    assert "sessions.jsonl" in out
    with pytest.raises(CommandError, match="already exists"):
        run_history("person", "wombatname", "--export", tmp_path / "ada.zip")
    assert [path.name for path in tmp_path.iterdir()] == ["ada.zip"]
    with pytest.raises(CommandError, match="no user called"):
        run_history("person", "unknown", "--export", tmp_path / "x.zip")
