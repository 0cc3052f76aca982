"""People: in and out, passwords, preferences, and what a stranger does not see."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user
from django.test import Client, RequestFactory, override_settings
from django.utils import timezone

from project.accounts import lockout
from project.accounts.models import SignInFailure, User

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
RIGHT = {"username": "ada", "password": "analytical engine"}
WRONG = {"username": "ada", "password": "guessed"}


def is_signed_in(client: Client) -> bool:
    return get_user(client).is_authenticated


def test_the_right_password_opens(client: Client, ada: User) -> None:
    response = client.post("/accounts/signin/", RIGHT)
    assert response.headers["Location"] == "/"
    assert is_signed_in(client)


def test_a_wrong_password_does_not(client: Client, ada: User) -> None:
    response = client.post("/accounts/signin/", WRONG)
    assert response.status_code == 200
    assert not is_signed_in(client)


@pytest.mark.parametrize(
    "target", ["https://evil.example/", "//evil.example/", "javascript:alert(1)", "/\\evil.example"]
)
def test_next_never_leads_away(client: Client, ada: User, target: str) -> None:
    response = client.post("/accounts/signin/", {**RIGHT, "next": target})
    assert response.headers["Location"] == "/"


def test_next_leads_back(client: Client, ada: User) -> None:
    response = client.post("/accounts/signin/", {**RIGHT, "next": "/accounts/preferences/"})
    assert response.headers["Location"] == "/accounts/preferences/"


def test_after_five_wrong_passwords_even_the_right_one_waits(client: Client, ada: User) -> None:
    for _ in range(lockout.PER_NAME_AND_ADDRESS):
        assert client.post("/accounts/signin/", WRONG).status_code == 200
    blocked = client.post("/accounts/signin/", RIGHT)
    assert blocked.status_code == 429
    assert not is_signed_in(client)
    assert "Too many wrong attempts" in blocked.content.decode()


def test_others_at_other_addresses_are_not_held_up(client: Client, ada: User, bob: User) -> None:
    for _ in range(lockout.PER_NAME_AND_ADDRESS):
        client.post("/accounts/signin/", WRONG)
    assert client.post("/accounts/signin/", {"username": "bob", "password": "a stranger"}).status_code == 302
    elsewhere = Client(REMOTE_ADDR="192.0.2.7")
    assert elsewhere.post("/accounts/signin/", RIGHT).status_code == 302


def test_one_address_cannot_try_all_users(client: Client, ada: User) -> None:
    now = timezone.now()
    SignInFailure.objects.bulk_create(
        SignInFailure(name_hash=str(number), address="127.0.0.1", at=now) for number in range(lockout.PER_ADDRESS)
    )
    assert client.post("/accounts/signin/", RIGHT).status_code == 429


def test_sign_in_is_possible_again_after_fifteen_minutes(client: Client, ada: User) -> None:
    for _ in range(lockout.PER_NAME_AND_ADDRESS):
        client.post("/accounts/signin/", WRONG)
    SignInFailure.objects.update(at=timezone.now() - lockout.WINDOW)
    assert client.post("/accounts/signin/", RIGHT).status_code == 302


def test_a_success_forgets_the_failures(client: Client, ada: User) -> None:
    client.post("/accounts/signin/", WRONG)
    client.post("/accounts/signin/", RIGHT)
    assert not SignInFailure.objects.exists()


def test_a_name_that_failed_is_not_kept_in_clear(client: Client) -> None:
    client.post("/accounts/signin/", {"username": "my secret password", "password": "x"})
    assert "secret" not in str(list(SignInFailure.objects.values()))


def test_a_forged_forwarding_header_changes_nothing(rf: RequestFactory) -> None:
    request = rf.get("/", headers={"X-Forwarded-For": "203.0.113.9, 192.0.2.1"}, REMOTE_ADDR="10.0.0.1")
    assert lockout.address_of(request) == "10.0.0.1"
    with override_settings(PARLEY_TRUSTED_PROXIES=1):
        assert lockout.address_of(request) == "192.0.2.1"
    with override_settings(PARLEY_TRUSTED_PROXIES=3):
        assert lockout.address_of(request) == "10.0.0.1"


@pytest.mark.parametrize(
    ("address", "counted"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("192.0.2.1:4711", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:aaaa::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:bbbb::2", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::3]:4711", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
    ],
)
def test_a_client_with_many_addresses_counts_once(rf: RequestFactory, address: str, counted: str) -> None:
    assert lockout.address_of(rf.get("/", REMOTE_ADDR=address)) == counted


def test_signing_out_needs_a_post(client: Client, ada: User) -> None:
    client.force_login(ada)
    assert client.get("/accounts/signout/").status_code == 405
    assert is_signed_in(client)
    client.post("/accounts/signout/")
    assert not is_signed_in(client)


def test_a_password_is_changed_with_the_old_one(client: Client, ada: User) -> None:
    client.force_login(ada)
    new = {"new_password1": "difference engine", "new_password2": "difference engine"}
    assert client.post("/accounts/password/", {"old_password": "guessed", **new}).status_code == 200
    assert client.post("/accounts/password/", {"old_password": "analytical engine", **new}).status_code == 302
    assert is_signed_in(client)
    ada.refresh_from_db()
    assert ada.check_password("difference engine")


def test_a_weak_password_is_refused(client: Client, ada: User) -> None:
    client.force_login(ada)
    weak = {"old_password": "analytical engine", "new_password1": "1234567890", "new_password2": "1234567890"}
    assert client.post("/accounts/password/", weak).status_code == 200
    ada.refresh_from_db()
    assert ada.check_password("analytical engine")


def test_language_theme_and_time_zone_are_kept_and_hold_at_once(client: Client, ada: User) -> None:
    client.force_login(ada)
    chosen = {"language": "zh-hans", "theme": "dark", "time_zone": "Asia/Shanghai"}
    page = client.post("/accounts/preferences/", chosen, follow=True).content.decode()
    assert '<html lang="zh-hans" data-theme="dark">' in page
    assert "偏好设置已保存。" in page
    ada.refresh_from_db()
    assert (ada.language, ada.theme, ada.time_zone) == ("zh-hans", "dark", "Asia/Shanghai")


def test_times_are_shown_in_the_readers_zone(client: Client, staff: User, ada: User) -> None:
    User.objects.filter(pk=ada.pk).update(last_login="2026-01-31T20:00:00Z")
    User.objects.filter(pk=staff.pk).update(time_zone="Asia/Shanghai")
    client.force_login(staff)
    User.objects.filter(pk=ada.pk).update(last_login="2026-01-31T20:00:00Z")
    assert "1 Feb 2026, 04:00" in client.get("/accounts/people/").content.decode()


def test_one_readers_choices_do_not_reach_the_next(client: Client, ada: User, bob: User) -> None:
    User.objects.filter(pk=ada.pk).update(language="zh-hans", time_zone="Asia/Shanghai")
    client.force_login(ada)
    assert 'lang="zh-hans"' in client.get("/").content.decode()
    client.force_login(bob)
    assert 'lang="en"' in client.get("/").content.decode()
    assert timezone.get_current_timezone_name() == "UTC"


def test_users_without_a_choice_get_the_browsers_language(client: Client) -> None:
    page = client.get("/accounts/signin/", headers={"Accept-Language": "zh-CN,zh;q=0.9"}).content.decode()
    assert 'lang="zh-hans"' in page
    assert "登录" in page


def test_a_time_zone_that_does_not_exist_is_refused(client: Client, ada: User) -> None:
    client.force_login(ada)
    response = client.post("/accounts/preferences/", {"language": "", "theme": "dark", "time_zone": "Mars/Olympus"})
    assert response.status_code == 200
    ada.refresh_from_db()
    assert ada.theme == "system"


def test_every_page_sends_a_visitor_to_the_sign_in_page(client: Client) -> None:
    for path in ("/", "/accounts/preferences/", "/accounts/password/", "/accounts/people/"):
        assert client.get(path).headers["Location"] == f"/accounts/signin/?next={path}"


def test_the_admin_uses_the_normal_sign_in_page(client: Client, ada: User, staff: User) -> None:
    assert client.get("/admin/", follow=True).redirect_chain[-1][0] == "/accounts/signin/?next=/admin/"
    assert client.get("/admin/login/?next=//evil.example").headers["Location"] == "/accounts/signin/?next=/admin/"
    client.force_login(ada)
    assert client.get("/admin/", follow=True).status_code == 404
    client.force_login(staff)
    assert client.get("/admin/").status_code == 200


def test_people_can_be_seen_in_the_admin(client: Client, admin_user: User) -> None:
    client.force_login(admin_user)
    assert client.get("/admin/accounts/user/").status_code == 200
    assert 'name="time_zone"' in client.get(f"/admin/accounts/user/{admin_user.pk}/change/").content.decode()
