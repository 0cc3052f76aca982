"""Home and health."""

from __future__ import annotations

import pytest
from django.db import connection
from django.template.loader import render_to_string
from django.test import Client, override_settings

from history.entries import ModelInput, Text
from history.record import recorder
from project.accounts.models import User

pytestmark = pytest.mark.django_db


def create_message(owner: User, text: str) -> None:
    session = recorder.start_session(owner=owner)
    recorder.append(session, ModelInput(parts=(Text(text=text),)), after=0)


def test_home_shows_only_my_conversations(client: Client, ada: User, bob: User) -> None:
    create_message(ada, "Where is my loom?")
    client.force_login(ada)
    assert "Where is my loom?" in client.get("/").content.decode()
    client.force_login(bob)
    page = client.get("/").content.decode()
    assert "Where is my loom?" not in page
    assert "No chats yet" in page


def test_home_says_when_history_is_off(client: Client, ada: User) -> None:
    client.force_login(ada)
    assert "History is off" not in client.get("/").content.decode()
    with override_settings(CHAT_HISTORY_ENABLED=False):
        assert "History is off" in client.get("/").content.decode()


def test_a_title_cannot_smuggle_markup(client: Client, ada: User) -> None:
    create_message(ada, "<script>alert(1)</script> loom")
    client.force_login(ada)
    assert "<script>alert(1)" not in client.get("/").content.decode()


def test_healthz_says_alive_without_the_database(client: Client, django_assert_num_queries: object) -> None:
    with django_assert_num_queries(0):  # type: ignore[operator]
        assert client.get("/healthz").json() == {"alive": True}


def test_readyz_says_ready(client: Client) -> None:
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"ready": True, "missing": []})


def test_readyz_names_a_migration_that_is_missing(client: Client) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM django_migrations WHERE app = 'accounts'")
    response = client.get("/readyz")
    assert response.status_code == 503
    assert "migration accounts.0001_initial" in response.json()["missing"]


def test_no_page_needs_a_foreign_server_or_inline_code(client: Client, ada: User) -> None:
    client.force_login(ada)
    for path in ("/", "/accounts/preferences/", "/accounts/password/"):
        page = client.get(path).content.decode()
        assert 'src="http' not in page
        assert "<style" not in page
        assert 'style="' not in page
        assert "<script>" not in page
        assert "onclick" not in page


def test_a_missing_page_is_told_in_our_own_words(client: Client) -> None:
    response = client.get("/nowhere/")
    assert response.status_code == 404
    assert "This page does not exist" in response.content.decode()


def test_static_files_are_served_by_the_application(client: Client) -> None:
    response = client.get("/static/css/tokens.css")
    assert response.status_code == 200
    assert b"--paper" in response.content


def test_the_page_for_an_error_needs_nothing_that_could_fail() -> None:
    assert "Something went wrong" in render_to_string("500.html")


@pytest.mark.parametrize(
    ("referer", "page"),
    [
        ("http://testserver/history/?source=relay", "/history/%3Fsource%3Drelay"),
        ("http://elsewhere.example/history/", "/"),
        ("", "/"),
    ],
)
def test_sign_in_after_a_form_leads_back_to_its_page(client: Client, referer: str, page: str) -> None:
    response = client.post("/history/delete/", {"session": "x"}, HTTP_REFERER=referer)
    assert response.headers["Location"] == f"/accounts/signin/?next={page}"


def test_sign_in_leads_to_the_page_that_was_asked_for(client: Client) -> None:
    response = client.get("/keys/", HTTP_REFERER="http://testserver/history/")
    assert response.headers["Location"] == "/accounts/signin/?next=/keys/"


def test_the_address_of_a_form_opens_a_page_with_a_way_back(client: Client, ada: User) -> None:
    client.force_login(ada)
    response = client.get("/history/delete/")
    assert (response.status_code, response.headers["Allow"]) == (405, "POST")
    assert "It only receives forms." in response.content.decode()
    assert "no-store" in response.headers["Cache-Control"] or "no-cache" in response.headers["Cache-Control"]
    assert client.delete("/history/delete/").content == b""
