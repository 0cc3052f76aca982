"""REST: a file goes in as it is, is read in the background, and the job tells what became of it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from history import retention
from history.exporting import Selection, begin
from history.importing import jobs
from history.models import AuditEvent, ImportJob, Session
from project.accounts.models import User
from tests.clients import HISTORY, ApiClient, create_secret
from tests.factories import create_chat
from tests.history.importing.files import claude_code, lines, text, zipped

pytestmark = pytest.mark.django_db
TALK = lines(claude_code("user", "u1", None, "Hi there."), claude_code("assistant", "a1", "u1", [text("Hello.")]))
BYTES = "application/octet-stream"


@pytest.fixture(autouse=True)
def _no_leftovers(data_dir: Path) -> Iterator[None]:
    yield
    shutil.rmtree(data_dir / "imports", ignore_errors=True)


def send(api: ApiClient, content: bytes, *, query: str = "", kind: str = BYTES) -> Any:
    return api.client.post(f"{HISTORY}/import{query}", content, content_type=kind, headers=api.headers)


@pytest.mark.parametrize("content", [TALK, zipped({"talk.jsonl": TALK})], ids=["file", "zip"])
def test_a_file_becomes_sessions_of_its_sender(ada: User, content: bytes) -> None:
    api = ApiClient(key=create_secret(ada, "import", "read", owner_wide=True))
    answer = send(api, content, query="?name=talk.jsonl")
    job = answer.json()
    assert (answer.status_code, job["state"], job["items"], job["size"]) == (202, "waiting", [], len(content))
    assert answer["Location"] == f"{HISTORY}/import/{job['id']}"
    jobs.work()
    status = api.get(f"/import/{job['id']}")
    assert (status["state"], status["counts"]["imported"], status["files"][0]["name"]) == ("done", 1, "talk.jsonl")
    (item,) = [item for item in status["items"] if item["outcome"] == "imported"]
    assert item["session"] == str(Session.objects.get(owner=ada).pk)
    assert api.get("/sessions")["results"][0]["source"] == "import"


def test_what_lies_here_and_is_not_imported_has_a_limit(ada: User, settings: Any) -> None:
    settings.PARLEY_IMPORT_MB = 1
    api, full = ApiClient(ada), b"x" * 2**20
    assert [send(api, full).status_code for _ in range(jobs.UNFINISHED)] == [202] * jobs.UNFINISHED
    refused = send(api, full)
    assert (refused.status_code, refused.json()["error"]["code"]) == (413, "too_large")


def test_what_is_sent_again_changes_nothing(ada: User) -> None:
    api = ApiClient(ada)
    for outcome in ("imported", "already there"):
        job = send(api, TALK).json()
        jobs.work()
        assert api.get(f"/import/{job['id']}")["counts"][outcome] == 1
    assert Session.objects.count() == 1


def test_what_cannot_be_read_is_refused_in_the_report(ada: User) -> None:
    job = send(ApiClient(ada), b"nonsense", kind="text/plain").json()
    jobs.work()
    (item,) = ApiClient(ada).get(f"/import/{job['id']}")["items"]
    assert (item["outcome"], bool(item["why"])) == ("refused", True)


def test_the_whole_way_round(ada: User) -> None:
    create_chat(ada, "hello", "hello!")
    exported = b"".join(begin(ada, Selection(mine=True), "jsonl").pieces())
    retention.erase(Session.objects.get(), actor=ada, reason="for the test")
    send(ApiClient(ada), exported)
    jobs.work()
    assert b"".join(begin(ada, Selection(mine=True), "jsonl").pieces()) == exported


@pytest.mark.parametrize("kind", ["multipart/form-data; boundary=x", "application/x-www-form-urlencoded"])
def test_a_form_is_no_file(ada: User, kind: str) -> None:
    for api in (ApiClient(ada), ApiClient(key=create_secret(ada, "import"))):
        answer = send(api, b"--x--", kind=kind)
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def test_nothing_and_too_much_are_refused_and_leave_nothing_behind(ada: User, settings: Any) -> None:
    settings.PARLEY_IMPORT_MB = 1
    before = set(Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir())
    for content, refusal in ((b"", (400, "invalid")), (b"x" * 1_048_577, (413, "too_large"))):
        answer = send(ApiClient(ada), content)
        assert (answer.status_code, answer.json()["error"]["code"]) == refusal
    assert send(ApiClient(ada), b"x" * 1_048_576).status_code == 202
    assert set(Path(settings.FILE_UPLOAD_TEMP_DIR).iterdir()) == before
    assert ImportJob.objects.count() == 1


def test_nothing_goes_in_while_history_is_off(ada: User, settings: Any) -> None:
    settings.CHAT_HISTORY_ENABLED = False
    answer = send(ApiClient(ada), TALK)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "history_off")


def test_only_with_the_scope_and_only_ones_own_jobs(ada: User, bob: User) -> None:
    job = send(ApiClient(ada), TALK).json()
    for other in (ApiClient(bob), ApiClient(key=create_secret(bob, "import"))):
        assert other.refused(f"/import/{job['id']}") == (404, "not_found")
    for key in (create_secret(ada, "read", "write", "export"),):
        assert ApiClient(key=key).refused(f"/import/{job['id']}") == (403, "scope_missing")
        assert ApiClient(key=key).refused("/import", method="POST", body={}) == (403, "scope_missing")
    assert ApiClient().refused("/import", method="POST", body={}) == (401, "not_authenticated")
    assert ApiClient(ada).refused("/import/nonsense") == (404, "not_found")
    assert ApiClient(ada).refused("/import") == (405, "method_not_allowed")


def test_a_key_imports_under_itself_unless_it_sees_everything_of_its_owner(ada: User) -> None:
    create_chat(ada, "hello", "hello!")
    exported = b"".join(begin(ada, Selection(mine=True), "jsonl").pieces())
    owners = send(ApiClient(ada), TALK).json()
    narrow, wide = (ApiClient(key=create_secret(ada, "import", "read", owner_wide=wide)) for wide in (False, True))
    outcomes = []
    for content in (TALK, TALK, exported):
        job = send(narrow, content).json()
        jobs.work()
        (item,) = [item for item in narrow.get(f"/import/{job['id']}")["items"] if item["outcome"] != "noted"]
        outcomes.append(item["outcome"])
    assert outcomes == ["imported", "already there", "imported"], "of what is not its own it does not know"
    assert len(narrow.get("/sessions")["results"]) == 2, "a copy of its own"
    assert len(wide.get("/sessions")["results"]) == 4
    assert narrow.refused(f"/import/{owners['id']}") == (404, "not_found")
    assert wide.get(f"/import/{job['id']}")["state"] == "done"
    assert AuditEvent.objects.filter(action="sessions.imported", key__isnull=False).count() == 3
