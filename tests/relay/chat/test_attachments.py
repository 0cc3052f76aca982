"""Files that people attach: what is taken, how it travels to the message, and who gets it back."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core import signing
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from history import retention
from history.access.reasons import open_for_reading
from history.entries import DebugLog, Media, ModelInput, SystemInstructionSet, Text, ToolResult, ToolResults
from history.models import Blob, Session
from history.record import recorder
from history.text.media_types import media_type_of
from relay.chat.attachments import parts_of, refusal_text, tidy
from relay.errors import AttachmentRefused
from tests.factories import create_chat, model_output, tool_request, without_guards

# Files are judged before they are stored.
pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc330000000049454e44ae426082"
)


@pytest.fixture
def writer(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


def send(writer: Client, *files: tuple[str, bytes], status: int = 200) -> str:
    response = writer.post("/attachments/", {"file": [SimpleUploadedFile(name, content) for name, content in files]})
    assert response.status_code == status
    return response.content.decode()


def notes(html: str) -> list[str]:
    return [unescape(note) for note in re.findall(r'name="attachment" value="([^"]*)"', html)]


def session_with(owner: Any, content: bytes, *, name: str = "cat.png", media_type: str = "image/png") -> Session:
    stored = recorder.store_blob(content, media_type=media_type)
    media = Media(media_type=media_type, sha256=stored, name=name, size=len(content))
    session = recorder.start_session(owner=owner)
    recorder.append(session, ModelInput(parts=(Text(text="Look"), media)), after=0)
    return session


def address(session: Session, content: bytes = PNG) -> str:
    return f"/attachments/{session.pk}/{sha256(content).hexdigest()}"


# In.


@pytest.mark.parametrize(
    ("name", "content", "media_type"),
    [
        ("a.png", PNG, "image/png"),
        ("a.jpg", b"\xff\xd8\xff\xe0 and so on", "image/jpeg"),
        ("a.gif", b"GIF89a and so on", "image/gif"),
        ("a.webp", b"RIFF\0\0\0\0WEBPVP8 ", "image/webp"),
        ("a.pdf", b"%PDF-1.7 and so on", "application/pdf"),
        ("notes.txt", "季度报告".encode(), "text/plain"),
        ("table.csv", b"a,b\n1,2\n", "text/csv"),
        ("README.md", b"# Hello", "text/markdown"),
        ("config.json", b'{"a": 1}', "text/plain"),
        ("script.py", b"print(1)", "text/plain"),
        ("drawing.svg", b"<svg onload='alert(1)'/>", "text/plain"),
        ("page.html", b"<script>alert(1)</script>", "text/plain"),
        ("lies.png", b"not a picture at all", "text/plain"),
        ("lies.txt", PNG, "image/png"),
        ("program.exe", b"MZ\x90\0\x03\0", None),
        ("latin.txt", "Größe".encode("latin-1"), None),
        ("archive.zip", b"PK\x03\x04\0\0", None),
    ],
)
def test_what_a_file_is_is_decided_by_its_bytes(name: str, content: bytes, media_type: str | None) -> None:
    assert media_type_of(content, name=name) == media_type


def test_a_file_becomes_a_chip_and_the_chip_a_part_of_a_message(writer: Client, ada: Any) -> None:
    html = send(writer, ("cat.png", PNG))
    assert "cat.png" in html
    (part,) = parts_of(ada, notes(html))
    assert part == Media(media_type="image/png", sha256=sha256(PNG).hexdigest(), name="cat.png", size=len(PNG))
    session = recorder.start_session(owner=ada)
    recorder.append(session, ModelInput(parts=(Text(text="Look"), part)), after=0)
    assert bytes(Blob.objects.get(pk=part.sha256).data) == PNG


def test_many_files_come_together_and_each_has_its_own_fate(writer: Client, ada: Any) -> None:
    html = send(writer, ("cat.png", PNG), ("a.exe", b"MZ\0\0"), ("b.txt", b""), ("c.txt", b"hello"))
    assert [part.name for part in parts_of(ada, notes(html))] == ["cat.png", "c.txt"]
    assert html.count('role="alert"') == 2
    assert "Only pictures" in html
    assert "This file is empty." in html


def test_the_same_file_twice_is_one_attachment(writer: Client, ada: Any) -> None:
    twice = notes(send(writer, ("cat.png", PNG))) + notes(send(writer, ("cat.png", PNG)))
    assert len(parts_of(ada, twice)) == 1


def test_a_file_that_is_too_large_is_told_so_and_not_stored(writer: Client, settings: Settings) -> None:
    settings.PARLEY_ATTACHMENT_MB = 1
    html = send(writer, ("large.txt", b"x" * (1024 * 1024 + 1)), ("fits.txt", b"x" * 1024 * 1024))
    assert "Too large: a file can have up to 1 MB." in html
    assert len(notes(html)) == 1
    assert Blob.objects.count() == 1


def test_a_message_takes_so_many_and_no_more(writer: Client, ada: Any, settings: Settings) -> None:
    settings.PARLEY_ATTACHMENTS_PER_MESSAGE = 2
    html = send(writer, *[(f"{number}.txt", f"text {number}".encode()) for number in range(3)])
    assert "Too many files: a message can have up to 2." in html
    more = notes(html) + notes(send(writer, ("3.txt", b"text 3")))
    with pytest.raises(AttachmentRefused) as refused:
        parts_of(ada, more)
    assert refused.value.reason == "too_many"


def test_no_file_at_all_is_a_bad_request(writer: Client) -> None:
    assert writer.post("/attachments/", {}).status_code == 400


def test_nothing_is_stored_while_history_is_off(writer: Client, settings: Settings) -> None:
    settings.CHAT_HISTORY_ENABLED = False
    assert "History is off" in send(writer, ("cat.png", PNG))
    assert Blob.objects.count() == 0


def test_a_visitor_stores_nothing(client: Client) -> None:
    response = client.post("/attachments/", {"file": SimpleUploadedFile("cat.png", PNG)})
    assert response.status_code == 302
    assert Blob.objects.count() == 0


def test_nothing_is_stored_without_the_token(ada: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    assert client.post("/attachments/", {"file": SimpleUploadedFile("cat.png", PNG)}).status_code == 403
    assert client.get("/attachments/").status_code == 405


@pytest.mark.parametrize(
    ("name", "tidied"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\temp\\cat.png", "cat.png"),
        ("a\u202egnp.exe", "agnp.exe"),
        ("\r\nSet-Cookie: x", "Set-Cookie: x"),
        ("猫.png", "猫.png"),
        ("", "attachment"),
        ("x" * 300 + ".png", "x" * 196 + ".png"),
    ],
)
def test_a_name_is_only_a_name(name: str, tidied: str) -> None:
    assert tidy(name) == tidied


def test_a_name_cannot_smuggle_markup(writer: Client) -> None:
    assert "<b>" not in send(writer, ("<b>x<b>.txt", b"hello"))


# On the way to the message.


def refusal(person: Any, *given: str) -> str:
    with pytest.raises(AttachmentRefused) as refused:
        parts_of(person, given)
    assert refusal_text(refused.value)
    return refused.value.reason


def test_a_forged_note_is_refused(writer: Client, ada: Any) -> None:
    (note,) = notes(send(writer, ("cat.png", PNG)))
    for forged in (sha256(PNG).hexdigest(), note[:-1], "x" + note, note.replace(":", "", 1), "nonsense"):
        assert refusal(ada, forged) == "not_ours"


def test_a_note_of_another_user_is_refused(writer: Client, bob: Any) -> None:
    (note,) = notes(send(writer, ("cat.png", PNG)))
    assert refusal(bob, note) == "not_ours"


def test_something_else_that_we_have_signed_is_refused(ada: Any) -> None:
    told_elsewhere = {"sha256": "0" * 64, "name": "x", "media_type": "image/png", "size": 1, "user": ada.pk}
    assert refusal(ada, signing.dumps(told_elsewhere, salt="somewhere else")) == "not_ours"


def test_a_note_that_is_too_old_is_refused(ada: Any, writer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    (note,) = notes(send(writer, ("cat.png", PNG)))
    monkeypatch.setattr("time.time", lambda: timezone.now().timestamp() + 25 * 3600)
    assert refusal(ada, note) == "gone"


def test_what_was_purged_meanwhile_is_told(writer: Client, ada: Any) -> None:
    (note,) = notes(send(writer, ("cat.png", PNG)))
    without_guards(Blob.objects.all()).delete()
    assert refusal(ada, note) == "gone"


def test_what_is_about_to_be_sent_is_spared_by_the_purge_and_what_never_is_goes(writer: Client, ada: Any) -> None:
    (note,) = notes(send(writer, ("cat.png", PNG)))
    send(writer, ("other.txt", b"never sent"))
    Blob.objects.update(created_at=timezone.now() - timedelta(hours=2))
    parts_of(ada, [note])
    retention.purge(dry_run=False)
    assert list(Blob.objects.values_list("pk", flat=True)) == [sha256(PNG).hexdigest()]


def test_a_message_without_attachments_makes_no_query(ada: Any, django_assert_num_queries: Any) -> None:
    with django_assert_num_queries(0):
        assert parts_of(ada, []) == parts_of(ada, [""]) == ()


# Out.


def test_a_picture_is_shown_and_locked_up(writer: Client, ada: Any) -> None:
    response = writer.get(address(session_with(ada, PNG)))
    assert response.content == PNG
    assert response["Content-Type"] == "image/png"
    assert response["Content-Disposition"] == 'inline; filename="cat.png"'
    assert response["X-Content-Type-Options"] == "nosniff"
    assert response["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert response["Cache-Control"].startswith("private")


@pytest.mark.parametrize(
    ("content", "claimed", "served"),
    [
        (b"<script>alert(1)</script>", "text/html", "text/plain; charset=utf-8"),
        (b"<svg onload='alert(1)'/>", "image/svg+xml", "text/plain; charset=utf-8"),
        (b"<script>alert(1)</script>", "image/png", "text/plain; charset=utf-8"),
        (b"%PDF-1.7", "application/pdf", "application/pdf"),
        (b"\0\1\2", "image/png", "application/octet-stream"),
    ],
)
def test_other_types_are_downloads_with_any_content_type(
    writer: Client, ada: Any, content: bytes, claimed: str, served: str
) -> None:
    response = writer.get(address(session_with(ada, content, name="页.html", media_type=claimed), content))
    assert response["Content-Type"] == served
    assert response["Content-Disposition"].startswith("attachment; filename*=utf-8''")
    assert response["X-Content-Type-Options"] == "nosniff"


def test_a_picture_in_a_result_is_an_attachment_too(writer: Client, ada: Any) -> None:
    session = create_chat(ada, "Draw a cat")
    stored = recorder.store_blob(PNG, media_type="image/png")
    drawn = ToolResult(call_id="a", name="draw", parts=(Media(media_type="image/png", sha256=stored),))
    recorder.append_many(
        session, [model_output("", tool_request("a", name="draw")), ToolResults(results=(drawn,))], after=1
    )
    assert writer.get(address(session)).status_code == 200


def test_a_stranger_gets_nothing_and_staff_with_the_right_do(client: Client, ada: Any, bob: Any, staff: Any) -> None:
    session = session_with(ada, PNG)
    assert client.get(address(session)).status_code == 302
    for user in (bob, staff):
        client.force_login(user)
        assert client.get(address(session)).status_code == 404
    staff.user_permissions.add(Permission.objects.get(codename="view_session", content_type__app_label="history"))
    assert client.get(address(session)).status_code == 403
    staff.user_permissions.set(Permission.objects.filter(codename__in=["view_session", "read_session"]))
    open_for_reading(type(staff).objects.get(pk=staff.pk), session, reason="ticket 7")
    assert client.get(address(session)).status_code == 200


def test_a_hash_is_worth_nothing_in_a_session_that_does_not_use_it(client: Client, ada: Any, bob: Any) -> None:
    session_with(ada, PNG)
    mine = session_with(bob, b"another file", media_type="text/plain")
    client.force_login(bob)
    assert client.get(address(mine)).status_code == 404
    assert client.get(f"/attachments/{mine.pk}/nonsense").status_code == 404


def test_long_texts_that_are_kept_like_files_are_none(writer: Client, ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    instruction = "You look after the machines. " * 100
    recorder.append(session, SystemInstructionSet(instruction=instruction), after=0)
    recorder.append(session, DebugLog(message="x" * 100_000), after=1)
    for blob in Blob.objects.all():
        assert writer.get(f"/attachments/{session.pk}/{blob.pk}").status_code == 404
    assert Blob.objects.count() == 2


def test_a_deleted_session_gives_nothing_back(writer: Client, ada: Any) -> None:
    session = session_with(ada, PNG)
    retention.hide(session, actor=ada)
    assert writer.get(address(session)).status_code == 404
