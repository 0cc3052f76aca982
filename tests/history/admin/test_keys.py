"""Keys, the audit chain and share links in the admin."""

from __future__ import annotations

import re
from html import unescape
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client

from history.access import audit, keys
from history.access.key_cache import RevokedKey
from history.models import ApiKey, AuditEvent, ShareLink
from history.transcripts.share_links import share, token_of
from tests.factories import create_chat

pytestmark = pytest.mark.django_db

KEYS, AUDIT, LINKS = "/admin/history/apikey/", "/admin/history/auditevent/", "/admin/history/sharelink/"


@pytest.fixture
def admin(client: Client, admin_user: Any) -> Client:
    client.force_login(admin_user)
    return client


@pytest.fixture
def keeper(client: Client, staff: Any) -> Client:
    staff.user_permissions.set(Permission.objects.filter(codename__endswith="_apikey"))
    client.force_login(staff)
    return client


def read(client: Client, address: str, **params: Any) -> str:
    response = client.get(address, params)
    assert response.status_code == 200
    return unescape(response.content.decode())


def form(owner: Any, **fields: Any) -> dict[str, Any]:
    return {"name": "laptop", "owner": owner.pk, "scopes": ["read"], "recording": "redacted", **fields}


def test_each_box_of_the_time_has_a_name_of_its_own(admin: Client) -> None:
    html = read(admin, f"{KEYS}add/")
    assert re.search(r'<input [^>]*name="expires_at_0"[^>]*aria-label="expires: Date"', html, re.IGNORECASE)
    assert re.search(r'<input [^>]*name="expires_at_1"[^>]*aria-label="expires: Time"', html, re.IGNORECASE)


def test_a_new_key_is_shown_once_and_nowhere_else(admin: Client, ada: Any) -> None:
    response = admin.post(f"{KEYS}add/", form(ada, requests_per_minute="7", owner_wide="on"))
    match = re.search(r"parley_[a-z0-9]+_\w+", response.content.decode())
    assert match
    assert "no-store" in response["Cache-Control"]
    assert match[0] not in str(response.cookies)
    key = keys.authenticate(match[0], scope="read")
    assert (key.owner, key.requests_per_minute, key.owner_wide) == (ada, 7, True)
    for address in (KEYS, f"{KEYS}{key.pk}/change/", "/admin/"):
        html = read(admin, address)
        assert match[0] not in html
        assert key.secret_hash.hex() not in html
    assert AuditEvent.objects.get(action="key.created").key == key.pk
    assert f"laptop ({key.prefix}" in read(admin, "/admin/"), "recent actions name the key"


def test_staff_make_keys_for_themselves_and_only_a_superuser_for_others_or_for_everything(
    keeper: Client, staff: Any, ada: Any
) -> None:
    assert b"Only superusers create keys for other users" in keeper.post(f"{KEYS}add/", form(ada)).content
    refused = keeper.post(f"{KEYS}add/", form(staff, scopes=["read", "admin"]))
    assert b"Only superusers grant the scope admin" in refused.content
    assert not ApiKey.objects.exists()
    assert b"parley_" in keeper.post(f"{KEYS}add/", form(staff)).content


def test_a_key_needs_a_scope_and_admin_an_owner_who_is_staff(admin: Client, admin_user: Any, ada: Any) -> None:
    assert b"errorlist" in admin.post(f"{KEYS}add/", form(ada, scopes=[])).content
    assert b"errorlist" in admin.post(f"{KEYS}add/", form(ada, scopes=["admin"])).content
    assert not ApiKey.objects.exists()
    assert b"parley_" in admin.post(f"{KEYS}add/", form(admin_user, scopes=["read", "admin"])).content


def test_limits_are_changed_but_neither_owner_nor_scopes_and_it_is_audited(admin: Client, ada: Any, bob: Any) -> None:
    key = keys.create(name="laptop", owner=ada, scopes=["read"]).api_key
    changed = form(bob, name="desktop", scopes=["read", "admin"], tokens_per_day="5", owner_wide="on")
    assert admin.post(f"{KEYS}{key.pk}/change/", changed).status_code == 302
    key.refresh_from_db()
    assert (key.name, key.tokens_per_day) == ("desktop", 5)
    assert (key.owner, key.scopes, key.owner_wide) == (ada, ["read"], False)
    assert "tokens_per_day" in AuditEvent.objects.get(action="key.changed").details


def test_a_key_is_revoked_and_never_deleted(admin: Client, ada: Any) -> None:
    made = keys.create(name="laptop", owner=ada, scopes=["read"])
    page = admin.post(KEYS, {"action": "revoke_chosen", "_selected_action": [made.api_key.pk]}, follow=True)
    assert b"1 key was revoked." in page.content
    with pytest.raises(RevokedKey):
        keys.authenticate(made.secret)
    assert AuditEvent.objects.filter(action="key.revoked").count() == 1
    assert admin.get(f"{KEYS}{made.api_key.pk}/delete/").status_code == 403


def test_the_audit_chain_is_read_with_names_and_found_by_session_number_and_person(
    admin: Client, admin_user: Any, ada: Any
) -> None:
    session = create_chat(ada, "x")
    audit.record("session.read", actor=admin_user.pk, session=session.pk, reason="ticket <7>")
    audit.record("hold", actor=4711, reason="long ago")
    html = read(admin, AUDIT)
    assert "admin" in html
    assert "ticket <7>" in html
    assert "#4711" in html
    for params, number in (
        ({"q": str(session.pk)}, 1), ({"q": "2"}, 1), ({"q": "admin"}, 1), ({"q": "unknown"}, 0),
        ({"session": str(session.pk)}, 1), ({"action": "hold"}, 1),
    ):  # fmt: skip
        assert read(admin, AUDIT, **params).count("field-action") == number, params
    event = AuditEvent.objects.get(seq=1)
    assert event.seal.hex() in read(admin, f"{AUDIT}{event.pk}/change/")
    assert admin.post(f"{AUDIT}{event.pk}/change/", {"reason": "other"}).status_code == 403


def test_share_links_are_listed_without_the_link_and_revoked(admin: Client, ada: Any) -> None:
    link = share(create_chat(ada, "x", title="Looms"), by=ada)
    html = read(admin, LINKS) + read(admin, f"{LINKS}{link.pk}/change/")
    assert "Session of " in html
    assert "Looms" not in html  # a title is text: staff open a session with a reason first
    assert str(token_of(link)) not in html
    assert link.token_hash.hex() not in html
    page = admin.post(LINKS, {"action": "revoke_chosen", "_selected_action": [link.pk]}, follow=True)
    assert b"1 link was revoked." in page.content
    assert ShareLink.objects.get().revoked_at
    assert AuditEvent.objects.filter(action="unshare").exists()
