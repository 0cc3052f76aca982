"""Guessing passwords: many at once, from many addresses, and what it does to the person whose name is guessed."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.cookies import SimpleCookie

import pytest
from django.contrib.auth import get_user
from django.db import connections
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from project.accounts import lockout
from project.accounts.links import create_link
from project.accounts.lockout import COOKIE
from project.accounts.models import SignInFailure, User
from tests.project.server.counting import LOOKED_AT

pytestmark = pytest.mark.django_db(transaction=True)
RIGHT = {"username": "ada", "password": "analytical engine"}
WRONG = {"username": "ada", "password": "guessed"}
AT_ONCE = 24


@pytest.fixture
def looked_at(settings: Settings) -> list[str]:
    """The names whose passwords were looked at, one for each time."""
    settings.AUTHENTICATION_BACKENDS = ["tests.project.server.counting.CountingBackend"]
    LOOKED_AT.clear()
    return LOOKED_AT


def all_at_once(requests: list[Callable[[], int]]) -> list[int]:
    """Each in a thread of its own, all let go at the same moment; what they answered."""
    gate, codes = threading.Barrier(len(requests)), []

    def ask(request: Callable[[], int]) -> None:
        try:
            gate.wait()
            codes.append(request())
        finally:
            connections.close_all()

    threads = [threading.Thread(target=ask, args=[request]) for request in requests]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(codes) == len(requests)
    return codes


def sign_in(words: dict[str, str], *, address: str = "127.0.0.1") -> Callable[[], int]:
    return lambda: Client(REMOTE_ADDR=address).post("/accounts/signin/", words).status_code


def guessed_everywhere(name: str) -> None:
    """As many failures of one name as there may be, each from another address."""
    SignInFailure.objects.bulk_create(
        SignInFailure(name_hash=lockout.hash_of(name), address=f"198.51.100.{number}", at=timezone.now())
        for number in range(lockout.PER_NAME)
    )


def test_of_many_guesses_at_once_no_more_are_looked_at_than_one_after_the_other(
    ada: User, looked_at: list[str]
) -> None:
    codes = all_at_once([sign_in(WRONG)] * AT_ONCE)
    assert len(looked_at) == lockout.PER_NAME_AND_ADDRESS
    assert sorted(codes) == [200] * lockout.PER_NAME_AND_ADDRESS + [429] * (AT_ONCE - lockout.PER_NAME_AND_ADDRESS)


def test_one_address_cannot_try_many_names_at_once(looked_at: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lockout, "PER_ADDRESS", 8)
    all_at_once([sign_in({"username": f"name-{number}", "password": "x"}) for number in range(AT_ONCE)])
    assert len(looked_at) == 8


def test_many_addresses_at_once_cannot_try_one_name_for_ever(
    ada: User, looked_at: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lockout, "PER_NAME", 8)
    all_at_once([sign_in(WRONG, address=f"192.0.2.{number}") for number in range(AT_ONCE)])
    assert len(looked_at) == 8


def test_the_right_password_resets_the_counter(ada: User) -> None:
    for _ in range(2 * lockout.PER_NAME_AND_ADDRESS):
        assert sign_in(RIGHT)() == 302
    assert not SignInFailure.objects.exists()


def test_an_empty_password_forgets_no_failure(client: Client, ada: User) -> None:
    for _ in range(lockout.PER_NAME_AND_ADDRESS):
        client.post("/accounts/signin/", WRONG)
        client.post("/accounts/signin/", {**WRONG, "password": ""})
    assert client.post("/accounts/signin/", RIGHT).status_code == 429


def test_a_name_guessed_from_everywhere_rests_and_other_names_do_not(ada: User, bob: User) -> None:
    guessed_everywhere("ada")
    assert sign_in(RIGHT)() == 429
    assert sign_in({"username": "bob", "password": "a stranger"})() == 302


def test_a_one_time_link_opens_while_the_name_rests(client: Client, ada: User) -> None:
    guessed_everywhere("ada")
    client.post("/" + create_link(ada).split("/", 3)[3])
    assert get_user(client).is_authenticated


@pytest.mark.parametrize("way", ["password", "link"])
def test_a_browser_that_knows_the_person_is_not_kept_out_by_strangers(client: Client, ada: User, way: str) -> None:
    if way == "password":
        client.post("/accounts/signin/", RIGHT)
    else:
        client.post("/" + create_link(ada).split("/", 3)[3])
    client.post("/accounts/signout/")
    guessed_everywhere("ada")
    assert client.post("/accounts/signin/", RIGHT).status_code == 302


def test_a_browser_known_to_another_user_does_not_bypass_the_limit(client: Client, ada: User, bob: User) -> None:
    client.post("/accounts/signin/", {"username": "bob", "password": "a stranger"})
    client.post("/accounts/signout/")
    guessed_everywhere("ada")
    assert client.post("/accounts/signin/", RIGHT).status_code == 429


def test_a_forged_cookie_is_no_way_around(client: Client, ada: User) -> None:
    guessed_everywhere("ada")
    client.cookies = SimpleCookie({COOKIE: f"{lockout.hash_of('ada')}:1tAAAA:forged"})
    assert client.post("/accounts/signin/", RIGHT).status_code == 429


def test_a_known_browser_guesses_no_more_than_five_either(client: Client, ada: User) -> None:
    client.post("/accounts/signin/", RIGHT)
    client.post("/accounts/signout/")
    for _ in range(lockout.PER_NAME_AND_ADDRESS):
        assert client.post("/accounts/signin/", WRONG).status_code == 200
    assert client.post("/accounts/signin/", RIGHT).status_code == 429
