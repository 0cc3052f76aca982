"""/import/: files are sent, a job runs in the background, and its page tells how it went."""

from __future__ import annotations

import os
import shutil
import time
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from history.http import MEGABYTE, body_limit_of
from history.importing import jobs, storing
from history.models import AuditEvent, ImportJob, Session
from project.accounts.models import User
from tests.history.importing.files import chatgpt, chatgpt_node, claude_code, document, lines, text, zipped

pytestmark = pytest.mark.django_db

TALK = lines(
    claude_code("user", "u1", None, "Hi <b>there</b>."), claude_code("assistant", "a1", "lost", [text("Hello.")])
)


@pytest.fixture
def as_ada(client: Client, ada: User) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture(autouse=True)
def _no_leftovers(data_dir: Path) -> Any:
    yield
    shutil.rmtree(data_dir / "imports", ignore_errors=True)


def send(client: Client, *files: tuple[str, bytes]) -> Any:
    sent = [SimpleUploadedFile(name, content) for name, content in files]
    return client.post("/import/", {"files": sent})


def sent_in_pieces(client: Client, name: str, content: bytes, *, size: int) -> str:
    """As the script does it; gives the address of the job."""
    begun = client.post("/import/begin/", {"name": [name], "size": [len(content)]}).json()
    for offset in range(0, len(content), size):
        piece = content[offset : offset + size]
        address = f"{begun['pieces']}0/?offset={offset}"
        assert client.post(address, piece, content_type="application/octet-stream").status_code == 200
    client.post(begun["start"])
    return str(begun["page"])


def test_a_form_with_files_is_a_job_that_runs_by_itself(as_ada: Client, ada: User) -> None:
    answer = send(as_ada, ("talk.jsonl", TALK), ("other.json", b"[1, 2]"))
    job = ImportJob.objects.get()
    assert answer["Location"] == f"/import/{job.pk}/"
    assert "waiting" in as_ada.get(answer["Location"]).text
    jobs.work()
    page = as_ada.get(answer["Location"]).text
    session = Session.objects.get()
    assert session.owner == ada
    assert f'href="/s/{session.pk}/"' in page
    assert "parent of an entry is missing from the file" in page
    assert "The format is not supported." in page
    assert "hx-get" not in page.split('id="import-job"')[1].split(">")[0], "it does not ask any more"
    assert not jobs.folder_of(job).exists(), "the files are gone when they are imported"


def test_what_strangers_wrote_is_shown_as_text(as_ada: Client) -> None:
    tree = chatgpt(chatgpt_node("u", None, "user", ["Hi."]), title="<script>alert(1)</script>")
    page = send(as_ada, ("conversations.json", document([tree])))["Location"]
    jobs.work()
    assert "<script>alert(1)" not in as_ada.get(page).text
    assert "&lt;script&gt;alert(1)" in as_ada.get(page).text


def test_large_files_come_in_pieces_and_a_lost_piece_is_sent_again(as_ada: Client) -> None:
    packed = zipped({"talk.jsonl": TALK})
    page = sent_in_pieces(as_ada, "export.zip", packed, size=100)
    jobs.work()
    assert Session.objects.count() == 1
    assert "export.zip" in as_ada.get(page).text


def test_a_piece_that_does_not_follow_is_told_how_far_it_is(as_ada: Client) -> None:
    begun = as_ada.post("/import/begin/", {"name": ["a.json"], "size": ["10"]}).json()
    kind = "application/octet-stream"
    assert as_ada.post(f"{begun['pieces']}0/?offset=0", b"12345", content_type=kind).json() == {"size": 5}
    again = as_ada.post(f"{begun['pieces']}0/?offset=0", b"12345", content_type=kind)
    assert (again.status_code, again.json()) == (409, {"size": 5})
    assert as_ada.post(f"{begun['pieces']}0/?offset=5", b"678901", content_type=kind).status_code == 413
    assert as_ada.post(f"{begun['pieces']}1/?offset=0", b"1", content_type=kind).status_code == 404
    assert as_ada.post(f"{begun['pieces']}0/?offset=x", b"1", content_type=kind).status_code == 404
    as_ada.post(begun["start"])
    assert ImportJob.objects.get().state == "uploading", "half a file is not run"
    refused = as_ada.post(begun["start"], headers={"accept": "application/json"})
    assert (refused.status_code, refused.json()) == (409, {"error": "Some files have not arrived. Send them again."})
    assert "Some files have not arrived." in as_ada.get(begun["page"]).text


def test_a_start_that_is_repeated_leads_to_the_same_job(as_ada: Client) -> None:
    begun = as_ada.post("/import/begin/", {"name": ["talk.jsonl"], "size": [str(len(TALK))]}).json()
    as_ada.post(f"{begun['pieces']}0/?offset=0", TALK, content_type="application/octet-stream")
    for _ in range(2):
        started = as_ada.post(begun["start"], headers={"accept": "application/json"})
        assert (started.status_code, started.json()) == (200, {"page": begun["page"]})
    assert ImportJob.objects.get().state == "waiting"


def test_more_than_the_limit_is_refused(as_ada: Client, settings: Any) -> None:
    settings.PARLEY_IMPORT_MB = 1
    assert send(as_ada, ("big.json", b"x" * 1_100_000)).status_code == 413
    refused = as_ada.post("/import/begin/", {"name": ["big.json"], "size": [str(2**21)]})
    assert (refused.status_code, "1 MB" in refused.json()["error"]) == (413, True)
    assert send(as_ada).status_code == 400
    assert as_ada.post("/import/begin/", {"name": ["a"], "size": ["-1"]}).status_code == 400
    assert not ImportJob.objects.exists()


def test_what_lies_here_and_is_not_imported_has_a_limit(as_ada: Client, settings: Any) -> None:
    settings.PARLEY_IMPORT_MB = 1
    for _ in range(jobs.UNFINISHED):
        assert as_ada.post("/import/begin/", {"name": ["a.json"], "size": [str(2**20)]}).status_code == 200
    refused = as_ada.post("/import/begin/", {"name": ["a.json"], "size": [str(2**20)]})
    assert (refused.status_code, "not imported yet" in refused.json()["error"]) == (413, True)
    assert send(as_ada, ("talk.jsonl", TALK)).status_code == 413
    jobs.remove(ImportJob.objects.all()[0])
    assert send(as_ada, ("talk.jsonl", TALK)).status_code == 302


def test_a_job_is_its_owners_alone(as_ada: Client, bob: User) -> None:
    page = send(as_ada, ("talk.jsonl", TALK))["Location"]
    stranger = Client()
    assert stranger.get(page).status_code == 302
    stranger.force_login(bob)
    assert stranger.get(page).status_code == 404
    for action in ("start/", "remove/", "pieces/0/?offset=0"):
        assert stranger.post(f"{page}{action}").status_code == 404
    assert "talk.jsonl" not in stranger.get("/import/").text
    assert "talk.jsonl" in as_ada.get("/import/").text


def test_a_job_whose_runner_died_is_interrupted_and_can_be_run_again(as_ada: Client) -> None:
    page = send(as_ada, ("talk.jsonl", TALK))["Location"]
    long_ago = timezone.now() - jobs.SILENT * 2
    ImportJob.objects.update(state="running", heartbeat_at=long_ago)
    assert "interrupted" in as_ada.get(page).text
    jobs.work()
    assert not Session.objects.exists(), "no worker has taken it"
    assert as_ada.post(f"{page}start/").status_code == 302
    jobs.work()
    assert Session.objects.count() == 1
    assert ImportJob.objects.get().state == "done"


def test_a_job_that_runs_is_not_begun_twice(as_ada: Client) -> None:
    page = send(as_ada, ("talk.jsonl", TALK))["Location"]
    ImportJob.objects.update(state="running", heartbeat_at=timezone.now())
    as_ada.post(f"{page}start/")
    assert ImportJob.objects.get().state == "running"


def test_a_small_import_does_not_wait_for_a_large_one(
    as_ada: Client, ada: User, bob: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "TURN", 0)
    many = [chatgpt(chatgpt_node("u", None, "user", [f"Number {n}."]), title=f"{n}", id=f"c{n}") for n in range(3)]
    for _ in range(2):
        send(as_ada, ("conversations.json", document(many)))
    as_bob = Client()
    as_bob.force_login(bob)
    send(as_bob, ("talk.jsonl", TALK))
    jobs.work()
    events = AuditEvent.objects.filter(action="sessions.imported").order_by("seq")
    assert list(events.values_list("actor", flat=True)) == [bob.pk, ada.pk, ada.pk]
    assert set(ImportJob.objects.values_list("state", flat=True)) == {"done"}


def test_nor_for_one_long_conversation(as_ada: Client, ada: User, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "TURN", 0)
    monkeypatch.setattr(storing, "BATCH", 1)
    append, batches = storing._append, count()
    as_bob = Client()
    as_bob.force_login(bob)

    def append_and_be_joined(*what: Any) -> None:
        append(*what)
        if next(batches) == 0:
            send(as_bob, ("talk.jsonl", TALK))

    monkeypatch.setattr(storing, "_append", append_and_be_joined)
    send(as_ada, ("talk.jsonl", TALK + TALK.replace(b'"u1"', b'"u2"').replace(b'"a1"', b'"a2"')))
    jobs.work()
    events = AuditEvent.objects.filter(action="sessions.imported").order_by("seq")
    assert list(events.values_list("actor", flat=True)) == [bob.pk, ada.pk]


def test_a_job_fails_in_words_while_history_is_off(as_ada: Client, settings: Any) -> None:
    page = send(as_ada, ("talk.jsonl", TALK))["Location"]
    settings.CHAT_HISTORY_ENABLED = False
    jobs.work()
    assert "history is off" in as_ada.get(page).text
    settings.CHAT_HISTORY_ENABLED = True
    as_ada.post(f"{page}start/")
    jobs.work()
    assert ImportJob.objects.get().state == "done"


def test_a_report_can_be_removed_and_what_was_imported_stays(as_ada: Client) -> None:
    page = send(as_ada, ("talk.jsonl", TALK))["Location"]
    jobs.work()
    as_ada.post(f"{page}remove/")
    assert as_ada.get(page).status_code == 404
    assert Session.objects.count() == 1


def test_a_page_that_waits_asks_for_its_piece_alone(as_ada: Client) -> None:
    page = send(as_ada, ("talk.jsonl", TALK))["Location"]
    assert f'hx-get="{page}"' in as_ada.get(page).text
    assert '<meta http-equiv="refresh"' in as_ada.get(page).text, "without a script, too"
    part = as_ada.get(page, headers={"HX-Request": "true"}).text
    assert "<html" not in part
    assert 'id="import-job"' in part


def test_unneeded_files_and_reports_are_removed(as_ada: Client, data_dir: Path) -> None:
    send(as_ada, ("talk.jsonl", TALK))
    job = ImportJob.objects.get()
    stray = data_dir / "imports" / "stray"
    stray.mkdir()
    os.utime(stray, (time.time() - 9_999, time.time() - 9_999))
    jobs.tidy()
    assert not stray.exists()
    assert jobs.is_whole(job)
    ImportJob.objects.update(created_at=timezone.now() - jobs.KEPT_FILES - timedelta(minutes=1))
    jobs.tidy()
    assert not jobs.folder_of(job).exists()
    ImportJob.objects.update(created_at=timezone.now() - jobs.KEPT_REPORTS - timedelta(minutes=1))
    jobs.tidy()
    assert not ImportJob.objects.exists()


def test_very_many_items_are_counted_and_not_all_kept(as_ada: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "KEPT_ITEMS", 2)
    trees = [chatgpt(chatgpt_node("u", None, "user", ["Hi."]), id=f"c{n}", conversation_id=f"c{n}") for n in range(5)]
    page = send(as_ada, ("conversations.json", document([*trees, 7])))["Location"]
    jobs.work()
    job = ImportJob.objects.get()
    assert [item["outcome"] for item in job.items] == ["imported", "imported", "refused"]
    assert job.counts["imported"] == 5
    assert "and 3 more" in as_ada.get(page).text


# No request is larger than anything that may be sent.


def test_views_that_take_files_say_how_large_a_request_may_be(settings: Any) -> None:
    settings.PARLEY_IMPORT_MB, settings.PARLEY_ATTACHMENT_MB, settings.PARLEY_ATTACHMENTS_PER_MESSAGE = 5, 2, 3
    assert body_limit_of("/import/") == 6 * MEGABYTE
    assert body_limit_of("/api/history/import") == body_limit_of("/api/history/import/") == 5 * MEGABYTE
    assert body_limit_of("/attachments/") == 7 * MEGABYTE
    assert body_limit_of("/lint/") == 8_000_000 + MEGABYTE
    assert [body_limit_of(path) for path in ("/healthz", "/accounts/signin/", "/nowhere")] == [None] * 3


def test_a_report_is_translated_with_its_values(as_ada: Client, ada: User) -> None:
    cut = zipped({"talk.jsonl": TALK})[:-30]
    tuned = lines({"messages": [{"role": "user", "content": "Hi."}]})
    address = send(as_ada, ("cut.zip", cut), ("tuned.jsonl", tuned + b"{broken\n" + tuned))["Location"]
    jobs.work()
    page = as_ada.get(address).text
    assert "The archive is damaged (File is not a zip file)." in page
    assert "line 2" in page
    ada.language = "zh-hans"
    ada.save()
    page = as_ada.get(address).text
    assert "压缩包已损坏（File is not a zip file）。" in page
    assert "第 2 行" in page
    assert "不是有效的 JSON（" in page
    assert [item["why"] for item in ImportJob.objects.get().items if item["file"] == "cut.zip"] == [
        "The archive is damaged (File is not a zip file)."
    ], "programs read English"


def test_an_empty_file_among_others_is_named(as_ada: Client) -> None:
    files = {"name": ["talk.jsonl", "empty.json"], "size": [str(len(TALK)), "0"]}
    refused = as_ada.post("/import/begin/", files)
    assert refused.status_code == 400
    assert refused.json()["error"] == "Empty file: empty.json. Choose the files again without it."
    page = send(as_ada, ("talk.jsonl", TALK), ("empty.json", b""))
    assert page.status_code == 400
    assert "Empty file: empty.json." in page.text
    assert not ImportJob.objects.exists()
