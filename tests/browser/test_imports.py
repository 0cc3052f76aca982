"""Import in a real browser: files are sent in pieces, the job runs by itself, and the report leads to the sessions."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from playwright.sync_api import FilePayload, Page, expect

from history.pages import imports as imports_views
from project.accounts.models import User
from tests.browser.conftest import enter
from tests.history.importing.files import chatgpt, chatgpt_node, claude_code, document, lines, text, zipped

pytestmark = pytest.mark.browser
See = Callable[[str], None]

CODE = lines(
    claude_code("user", "u1", None, "The build is red."), claude_code("assistant", "a1", "lost", [text("Typo.")])
)
EXPORT = zipped(
    {
        "chat.html": b"<html>",
        "conversations.json": document(
            [
                chatgpt(chatgpt_node("u", None, "user", ["Hi."]), title="A greeting"),
                chatgpt(chatgpt_node("u", None, "user", ["Hi."]), title="Nameless", id=None, conversation_id=None),
            ]
        ),
    }
)
FILES: list[FilePayload] = [
    {"name": "session.jsonl", "mimeType": "application/jsonl", "buffer": CODE},
    {"name": "chatgpt.zip", "mimeType": "application/zip", "buffer": EXPORT},
]


def test_files_are_sent_in_pieces_and_the_report_leads_to_what_was_imported(
    page: Page, site: str, see: See, ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(imports_views, "PIECE", 300)
    enter(page, site, ada)
    page.goto("/")
    page.get_by_text("ada", exact=True).first.click()
    page.get_by_role("link", name="Import").first.click()
    see("import")
    page.get_by_label("Files or archives").set_input_files(FILES)
    page.get_by_role("button", name="Import").click()
    expect(page).to_have_url(re.compile(r"/import/[0-9a-f-]{36}/$"))
    expect(page.get_by_text("done", exact=True)).to_be_visible()
    expect(page.get_by_text("parent of an entry is missing from the file")).to_be_visible()
    expect(page.get_by_text("this conversation has no id")).to_be_visible()
    see("import-report")
    page.get_by_role("link", name="A greeting").click()
    expect(page.get_by_text("Hi.", exact=True)).to_be_visible()


def test_the_first_piece_is_small_so_that_progress_moves_on_slow_networks(page: Page, site: str, ada: User) -> None:
    pieces: list[str] = []
    page.on("request", lambda sent: pieces.append(sent.url) if "/pieces/" in sent.url else None)
    enter(page, site, ada)
    page.goto("/import/")
    file: FilePayload = {"name": "a.json", "mimeType": "application/json", "buffer": b"[" + b" " * 400_000 + b"]"}
    page.get_by_label("Files or archives").set_input_files([file])
    page.get_by_role("button", name="Import").click()
    expect(page).to_have_url(re.compile(r"/import/[0-9a-f-]{36}/$"))
    assert [address.partition("offset=")[2] for address in pieces[:2]] == ["0", "65536"]


def test_it_works_without_javascript(plain: Page, site: str, ada: User) -> None:
    enter(plain, site, ada)
    plain.goto("/import/")
    plain.get_by_label("Files or archives").set_input_files(FILES)
    plain.get_by_role("button", name="Import").click()
    expect(plain.get_by_text("done", exact=True)).to_be_visible()
    expect(plain.get_by_role("link", name="A greeting")).to_be_visible()


def test_an_import_that_is_not_started_says_why(page: Page, site: str, ada: User) -> None:
    enter(page, site, ada)
    page.route("**/start/", lambda route: route.fulfill(status=400, content_type="text/html", body="Bad request"))
    page.goto("/import/")
    page.get_by_label("Files or archives").set_input_files(FILES)
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("alert").filter(visible=True)).to_have_text(
        "The server did not accept this. Reload the page and try again."
    )
    expect(page.get_by_role("button", name="Import")).to_be_enabled()
    page.unroute("**/start/")
    page.context.clear_cookies(name="parley_session")
    page.get_by_role("button", name="Import").click()
    expect(page.get_by_role("alert").filter(visible=True)).to_contain_text("You are signed out.")
