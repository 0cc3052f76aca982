"""The staff's page: new people and links for them, never more rights than the maker has."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth import get_user
from django.contrib.auth.models import Group, Permission
from django.test import Client

from history.models import AuditEvent
from project.accounts.models import SignInLink, User
from project.accounts.roles import GROUPS, PERMISSIONS, Role, give_role
from tests.factories import create_chat

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
PAGE = "/accounts/people/"


def link_in(page: str) -> str:
    found = re.search(r'value="http://[^/]+(/accounts/link/[^"]+)"', page)
    assert found, "the page shows no link"
    return found[1]


def test_for_a_stranger_the_page_does_not_exist(client: Client, ada: User, bob: User) -> None:
    client.force_login(bob)
    assert client.get(PAGE).status_code == 404
    assert client.post(PAGE, {"username": "mine"}).status_code == 404
    assert client.post(f"{PAGE}{ada.pk}/link/").status_code == 404
    assert not User.objects.filter(username="mine").exists()
    assert not SignInLink.objects.exists()


def test_staff_make_a_person_who_comes_in_by_link_and_sets_a_password(client: Client, staff: User) -> None:
    client.force_login(staff)
    page = client.post(PAGE, {"username": "kay", "first_name": "Kay"})
    path = link_in(page.content.decode())
    assert "no-store" in page.headers["Cache-Control"]

    newcomer = Client()
    assert newcomer.post(path).headers["Location"] == "/accounts/password/"
    form = newcomer.get("/accounts/password/").content.decode()
    assert "old_password" not in form
    newcomer.post("/accounts/password/", {"new_password1": "a fine password", "new_password2": "a fine password"})
    assert User.objects.get(username="kay").check_password("a fine password")
    assert get_user(newcomer).is_authenticated


def test_the_link_is_shown_once(client: Client, staff: User) -> None:
    client.force_login(staff)
    path = link_in(client.post(PAGE, {"username": "kay"}).content.decode())
    assert path not in client.get(PAGE).content.decode()


def test_staff_make_a_new_link_for_a_user(client: Client, staff: User, ada: User) -> None:
    client.force_login(staff)
    path = link_in(client.post(f"{PAGE}{ada.pk}/link/").content.decode())
    visitor = Client()
    assert visitor.post(path).headers["Location"] == "/"
    assert get_user(visitor) == ada


def test_no_link_leads_to_a_users_messages(client: Client, staff: User, ada: User, admin_user: User) -> None:
    """It would be a way past the right to read and the reason that goes with it."""
    create_chat(ada, "the secret")
    client.force_login(staff)
    assert client.post(f"{PAGE}{ada.pk}/link/").status_code == 404
    assert f"{PAGE}{ada.pk}/link/" not in client.get(PAGE).content.decode()
    assert not SignInLink.objects.exists()
    staff.user_permissions.add(Permission.objects.get(codename="change_user"))
    for maker in (staff, admin_user):
        client.force_login(maker)
        assert client.post(f"{PAGE}{ada.pk}/link/").status_code == 200
    events = AuditEvent.objects.filter(action="person.link").order_by("seq")
    assert [(event.actor, event.details) for event in events] == [
        (staff.pk, f'{{"person":{ada.pk}}}'),
        (admin_user.pk, f'{{"person":{ada.pk}}}'),
    ]


def test_a_link_is_not_made_by_looking(client: Client, staff: User, ada: User) -> None:
    client.force_login(staff)
    assert client.get(f"{PAGE}{ada.pk}/link/").status_code == 405


def test_staff_cannot_make_a_link_to_more_rights_than_their_own(client: Client, staff: User, admin_user: User) -> None:
    other = User.objects.create_user("other", is_staff=True)
    client.force_login(staff)
    for person in (admin_user, other):
        assert client.post(f"{PAGE}{person.pk}/link/").status_code == 404
    assert not SignInLink.objects.exists()
    assert client.post(f"{PAGE}{staff.pk}/link/").status_code == 200


def test_only_a_superuser_gives_roles(client: Client, staff: User, admin_user: User) -> None:
    client.force_login(staff)
    client.post(PAGE, {"username": "kay", "role": "administrator", "is_staff": "on", "is_superuser": "on"})
    assert not User.objects.get(username="kay").is_staff
    assert not User.objects.get(username="kay").is_superuser
    client.force_login(admin_user)
    client.post(PAGE, {"username": "may", "role": "administrator"})
    assert User.objects.get(username="may").is_superuser
    client.post(PAGE, {"username": "joe", "role": "user"})
    assert not User.objects.get(username="joe").is_staff
    client.post(PAGE, {"username": "zoe", "role": "emperor"})
    assert not User.objects.filter(username="zoe").exists()


@pytest.mark.parametrize("role", ["operator", "auditor"])
def test_a_new_staff_member_has_the_chosen_role_and_sees_the_admin(client: Client, admin_user: User, role: str) -> None:
    """That every link of theirs opens is tested in tests/project/pages/test_links_of_roles.py."""
    client.force_login(admin_user)
    client.post(PAGE, {"username": "may", "role": role})
    may = User.objects.get(username="may")
    assert may.is_staff
    assert not may.is_superuser
    assert may.groups.get().name == GROUPS[Role(role)]
    client.force_login(may)
    assert 'href="/admin/' in client.get("/").content.decode()


def test_staff_without_a_permission_see_no_link_to_the_admin(client: Client, staff: User) -> None:
    client.force_login(staff)
    for page in ("/", PAGE, "/mcp-servers/"):
        assert 'href="/admin/' not in client.get(page).content.decode()


def test_a_role_that_was_changed_in_the_admin_stays_changed(admin_user: User) -> None:
    give_role(User.objects.create_user("may"), Role.AUDITOR)
    group = Group.objects.get(name="Auditors")
    assert group.permissions.filter(codename="read_session").exists()
    group.permissions.clear()
    give_role(User.objects.create_user("joe"), Role.AUDITOR)
    assert not group.permissions.exists()


def test_every_permission_of_a_role_exists() -> None:
    for role, codenames in PERMISSIONS.items():
        give_role(User.objects.create_user(role), role)
        assert Group.objects.get(name=GROUPS[role]).permissions.count() == sum(map(len, codenames.values()))


def test_a_name_that_is_taken_is_refused_in_the_form(client: Client, staff: User, ada: User) -> None:
    client.force_login(staff)
    page = client.post(PAGE, {"username": "ada"}).content.decode()
    assert "already exists" in page
    assert not SignInLink.objects.exists()
