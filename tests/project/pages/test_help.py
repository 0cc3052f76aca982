"""/help/: the documentation as pages, for users who are signed in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from project.help.views import DOCS, find_page, list_pages

pytestmark = pytest.mark.django_db
NAMES = sorted(path.relative_to(DOCS).with_suffix("").as_posix() for path in DOCS.rglob("*.md"))


@pytest.fixture
def reader(client: Client, django_user_model: Any) -> Client:
    client.force_login(django_user_model.objects.create_user("ada", password="secret"))
    return client


def test_every_page_of_the_documentation_is_listed_and_linked(reader: Client) -> None:
    html = reader.get("/help/").content.decode()
    assert len(NAMES) > 40
    assert [name for name in NAMES if f'href="/help/{name}/"' not in html] == []
    assert 'href="/help/"' in reader.get("/history/").content.decode()


@pytest.mark.parametrize("name", NAMES)
def test_a_page_has_a_title_and_links_that_lead_somewhere(name: str) -> None:
    page = find_page(name)
    assert page is not None
    assert page.title in re.sub(r"<[^>]*>", "", page.html).replace("&amp;", "&")
    assert ".md" not in "".join(re.findall(r'href="([^"]*)"', page.html))
    for target, anchor in re.findall(r'href="/help/([^"#]*)/(?:#([^"]*))?"', page.html):
        other = find_page(target)
        assert other is not None, target
        assert not anchor or f'id="{anchor}"' in other.html, f"{target}#{anchor}"
    for anchor in re.findall(r'href="#([^"]*)"', page.html):
        assert f'id="{anchor}"' in page.html, anchor


def test_pictures_of_pages_are_served(reader: Client) -> None:
    pages = "".join(page.html for name in NAMES if (page := find_page(name)))
    pictures = set(re.findall(r'(?:src|srcset)="([^"]*)"', pages))
    assert len(pictures) >= 8
    for address in sorted(pictures):
        response = reader.get(address)
        content = b"".join(response.streaming_content)  # type: ignore[attr-defined]
        assert (response["Content-Type"], content[:4]) == ("image/png", b"\x89PNG"), address
        assert len(content) < 150_000, address


def test_tables_and_code_can_be_used_without_a_mouse_and_without_sight() -> None:
    pages = [page.html for name in NAMES if (page := find_page(name))]
    assert [html for html in pages if "<th></th>" in html or "<pre>" in html] == []
    assert any('<pre tabindex="0">' in html for html in pages)


def test_headings_have_permalinks_and_contents(reader: Client) -> None:
    html = reader.get("/help/reading/").content.decode()
    assert re.search(r'<h2 id="markdown">Markdown<a class="headerlink" href="#markdown"', html)
    assert '<a href="#markdown">Markdown</a>' in html.partition("<article")[0]
    assert "style=" not in html


def test_the_frame_of_a_page_speaks_the_readers_language(reader: Client) -> None:
    html = reader.get("/help/reading/", headers={"Accept-Language": "zh-hans"}).content.decode()
    assert "目录" in html
    assert '<article class="prose help-article" lang="en">' in html


@pytest.mark.parametrize(
    "address",
    ["/help/nothing/", "/help/../README/", "/help/..%2FREADME/", "/help/images/take.py/", "/help/images/nothing.png"],
)
def test_what_is_no_page_is_not_found(reader: Client, address: str) -> None:
    assert reader.get(address).status_code == 404


def test_signed_out_visitors_are_asked_to_sign_in(client: Client) -> None:
    for address in ("/help/", "/help/reading/"):
        response = client.get(address)
        assert (response.status_code, response["Location"].partition("?")[0]) == (302, "/accounts/signin/")


def test_documentation_is_found_where_parley_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert Path(settings.BASE_DIR) in DOCS.parents
    assert [page.name for page in list_pages() if page.name == "setup"] == ["setup"]
