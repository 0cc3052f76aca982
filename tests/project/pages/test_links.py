"""One-time links open once, for the first visitor. The database keeps nothing that opens a page."""

from __future__ import annotations

import json
import threading
from datetime import timedelta

import pytest
from django.contrib.auth import get_user
from django.core.management import CommandError, call_command
from django.db import connections
from django.test import Client
from django.utils import timezone

from project.accounts.links import claim_link, create_link
from project.accounts.models import SignInLink, User

pytestmark = pytest.mark.django_db


def path_of(link: str) -> str:
    return "/" + link.split("/", 3)[3]


def token_of(link: str) -> str:
    return link.rstrip("/").rpartition("/")[2]


def is_signed_in(client: Client) -> bool:
    return get_user(client).is_authenticated


def test_a_link_signs_in_once(client: Client, ada: User) -> None:
    path = path_of(create_link(ada))
    assert client.post(path).headers["Location"] == "/"
    assert is_signed_in(client)
    second = Client()
    again = second.post(path)
    assert again.status_code == 410
    assert "is no longer valid" in again.content.decode()
    assert not is_signed_in(second)


def test_looking_at_a_link_does_not_spend_it(client: Client, ada: User) -> None:
    path = path_of(create_link(ada))
    assert client.head(path).status_code == 200
    assert "Hello, ada" in client.get(path).content.decode()
    assert not is_signed_in(client)
    client.post(path)
    assert is_signed_in(client)


def test_a_link_that_is_too_old_says_what_to_do(client: Client, ada: User) -> None:
    path = path_of(create_link(ada))
    SignInLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert "manage.py signin" in client.get(path).content.decode()
    assert client.post(path).status_code == 410
    assert not is_signed_in(client)


@pytest.mark.parametrize("token", ["unknown", "%00", "字", "x" * 5000])
def test_an_unknown_link_gets_the_same_friendly_page(client: Client, token: str) -> None:
    assert client.get(f"/accounts/link/{token}/").status_code == 410


def test_a_link_of_a_deactivated_user_does_not_open(client: Client, ada: User) -> None:
    path = path_of(create_link(ada))
    User.objects.filter(pk=ada.pk).update(is_active=False)
    assert client.post(path).status_code == 410


def test_the_database_holds_nothing_that_opens(ada: User) -> None:
    token = token_of(create_link(ada))
    assert token not in str(list(SignInLink.objects.values()))


def test_a_link_needs_the_csrf_token_like_every_form(ada: User) -> None:
    client = Client(enforce_csrf_checks=True)
    assert client.post(path_of(create_link(ada))).status_code == 403


@pytest.mark.django_db(transaction=True)
def test_of_many_who_press_at_once_one_comes_in(ada: User) -> None:
    token = token_of(create_link(ada))
    ready, came_in = threading.Barrier(8), []

    def press() -> None:
        ready.wait()
        try:
            came_in.append(claim_link(token) is not None)
        finally:
            connections.close_all()

    threads = [threading.Thread(target=press) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(came_in) == [False] * 7 + [True]


def test_the_command_prints_a_link(ada: User, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("signin", "ada")
    client.post(path_of(capsys.readouterr().out.strip()))
    assert is_signed_in(client)


def test_the_command_speaks_json(ada: User, capsys: pytest.CaptureFixture[str]) -> None:
    call_command("signin", "ada", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said["user"] == "ada"
    assert said["link"].startswith("http://127.0.0.1:")
    assert said["hours"] == 24


def test_the_command_names_an_unknown_user(ada: User) -> None:
    with pytest.raises(CommandError, match="There is no user “unknown”"):
        call_command("signin", "unknown")
    User.objects.filter(pk=ada.pk).update(is_active=False)
    with pytest.raises(CommandError, match="disabled"):
        call_command("signin", "ada")
