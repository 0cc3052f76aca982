"""`/keys/`: a user's own keys and the calls made with them; other users see nothing."""

from __future__ import annotations

import os
import re
import subprocess
from datetime import timedelta
from decimal import Decimal
from html import unescape
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.db import connections
from django.test import AsyncClient, Client
from django.utils import timezone

from history import retention
from history.access import keys
from history.models import ApiKey, AuditEvent, Session
from relay.models import Allowance, KeyUse
from relay.usage import prices
from relay.usage.allowances import note_usage
from tests.factories import create_chat
from tests.history.access.test_permissions import with_right

pytestmark = pytest.mark.django_db
NEW = {"name": "laptop", "recording": "no_replies", "days": "30", "scopes": ["relay", "read", "export"]}


@pytest.fixture
def reader(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def key(ada: Any) -> ApiKey:
    return keys.create(name="laptop", owner=ada).api_key


def read(client: Client, address: str) -> str:
    response = client.get(address)
    assert response.status_code == 200
    return unescape(response.content.decode())


def test_a_key_is_made_and_shown_in_that_answer_alone(reader: Client, ada: Any) -> None:
    response = reader.post("/keys/", NEW)
    [secret] = re.findall(r'value="(parley_\w+)"', response.content.decode())
    made = keys.authenticate(secret)
    assert (made.name, made.owner_id, made.recording, made.scopes) == (
        "laptop",
        ada.pk,
        "no_replies",
        list(keys.DEFAULT_SCOPES),
    )
    assert made.expires_at is not None
    assert timedelta(days=29) < made.expires_at - timezone.now() < timedelta(days=31)
    assert "no-store" in response["Cache-Control"]
    assert AuditEvent.objects.get(action="key.created").actor == ada.pk
    again = read(reader, "/keys/")
    assert secret not in again
    assert made.prefix in again


def test_keys_share_the_budget_of_their_owner_and_the_page_shows_it(reader: Client, ada: Any, settings: Any) -> None:
    assert "Your budget today" not in read(reader, "/keys/")
    settings.PARLEY_CHAT_TOKENS_PER_DAY = 5_000
    Allowance.objects.create(user=ada, cost_per_day=Decimal("0.5"))
    reader.post("/keys/", NEW)
    made = ApiKey.objects.get()
    # A copy on the key would not bind the next key, and would not follow when staff change the allowance.
    assert (made.tokens_per_day, made.cost_per_day) == (None, None)
    note_usage(ada, tokens=1_234, cost=Decimal("0.5"))
    page = read(reader, "/keys/")
    assert "Your budget today" in page
    assert "1\u202f234 / 5\u202f000" in page
    assert page.count("used up") == 1


def test_a_form_makes_one_key_however_often_it_is_sent(reader: Client, ada: Any) -> None:
    [once] = re.findall(r'name="once" value="(\w+)"', read(reader, "/keys/"))
    made = reader.post("/keys/", NEW | {"once": once})
    assert "Copy the key now" in made.content.decode()
    again = reader.post("/keys/", NEW | {"once": once}, follow=True)
    assert again.redirect_chain == [("/keys/", 302)]
    assert "This form has already created its key" in again.content.decode()
    assert ApiKey.objects.count() == AuditEvent.objects.filter(action="key.created").count() == 1
    [another] = re.findall(r'name="once" value="(\w+)"', made.content.decode())
    reader.post("/keys/", NEW | {"once": another})
    assert ApiKey.objects.count() == 2


def test_the_same_form_of_another_user_makes_their_own_key(reader: Client, staff: Any) -> None:
    reader.post("/keys/", NEW | {"once": "abc"})
    reader.force_login(staff)
    reader.post("/keys/", NEW | {"once": "abc"})
    assert ApiKey.objects.count() == 2


@pytest.mark.parametrize("wrong", [{"name": " "}, {"recording": "some"}, {"days": "7"}, {"name": "x" * 101}], ids=str)
def test_what_makes_no_sense_makes_no_key(reader: Client, wrong: dict[str, str]) -> None:
    assert reader.post("/keys/", NEW | wrong).status_code == 422
    assert not ApiKey.objects.exists()


def test_each_recording_mode_is_told_with_what_it_means(reader: Client) -> None:
    html = read(reader, "/keys/")
    for mode in ApiKey.Recording.values:
        assert f'value="{mode}"' in html
    assert "No text is stored" in html
    assert re.search(r'value="redacted"[^>]* checked', html)


def test_scopes_and_reach_are_chosen_on_the_form(reader: Client, ada: Any) -> None:
    wanted = {"scopes": ["relay", "read", "write"], "owner_wide": "on"}
    html = reader.post("/keys/", NEW | wanted).content.decode()
    [secret] = re.findall(r'value="(parley_\w+)"', html)
    made = keys.authenticate(secret)
    assert (made.scopes, made.owner_wide) == (["relay", "read", "write"], True)
    # What the examples of docs/rest.md and docs/websocket.md need.
    create_chat(ada, "Hello", "Hi")
    listed = Client().get("/api/history/sessions", headers={"Authorization": f"Bearer {secret}"})
    assert len(listed.json()["results"]) == 1
    page = read(reader, f"/keys/{made.prefix}/")
    assert "all sessions of its owner" in page
    assert re.search(r'value="write"[^>]* checked', page)
    assert not re.search(r'value="delete"[^>]* checked', page)


@pytest.mark.parametrize("scopes", [[], ["admin"], ["relay", "root"]], ids=str)
def test_a_scope_that_is_not_offered_makes_no_key(reader: Client, scopes: list[str]) -> None:
    assert reader.post("/keys/", NEW | {"scopes": scopes}).status_code == 422
    assert not ApiKey.objects.exists()


def test_the_holder_changes_scopes_and_reach(reader: Client, ada: Any, key: ApiKey) -> None:
    reader.post(f"/keys/{key.prefix}/", NEW | {"scopes": ["read", "delete"], "owner_wide": "on"})
    key.refresh_from_db()
    assert (key.scopes, key.owner_wide) == (["read", "delete"], True)
    reader.post(f"/keys/{key.prefix}/", NEW)
    key.refresh_from_db()
    assert (key.scopes, key.owner_wide) == (["relay", "read", "export"], False)


def test_the_scope_admin_of_the_command_line_stays(client: Client, staff: Any) -> None:
    key = keys.create(name="ops", owner=staff, scopes=["read", "admin"]).api_key
    client.force_login(staff)
    client.post(f"/keys/{key.prefix}/", NEW | {"scopes": ["read", "export"]})
    key.refresh_from_db()
    assert key.scopes == ["read", "export", "admin"]


def test_client_settings_contain_the_new_key(reader: Client) -> None:
    html = unescape(reader.post("/keys/", NEW).content.decode())
    [secret] = re.findall(r'value="(parley_\w+)"', html)
    for name in ("ANTHROPIC_AUTH_TOKEN", "GEMINI_API_KEY", "OPENAI_API_KEY", "ANTHROPIC_API_KEY"):
        assert f"{name}={secret}" in html
    assert html.count("data-copy-beside") == 7  # the key, and the settings of six clients


def test_it_says_when_the_whole_server_records_nothing(reader: Client, settings: Any) -> None:
    assert "History is off" not in read(reader, "/keys/")
    settings.CHAT_HISTORY_ENABLED = False
    assert "History is off" in read(reader, "/keys/")


def test_the_holder_renames_it_and_changes_what_is_kept(reader: Client, ada: Any, key: ApiKey) -> None:
    response = reader.post(f"/keys/{key.prefix}/", NEW | {"name": "desk", "recording": "metadata"}, follow=True)
    assert "takes effect within a second" in response.content.decode()
    key.refresh_from_db()
    assert (key.name, key.recording) == ("desk", "metadata")
    assert '"name","recording"' in AuditEvent.objects.get(action="key.changed").details
    assert reader.post(f"/keys/{key.prefix}/", NEW | {"name": "desk", "recording": "x"}).status_code == 422


def test_revoking_asks_first_and_leaves_the_key_among_those_that_have_ended(reader: Client, key: ApiKey) -> None:
    assert "Revoke laptop?" in read(reader, f"/keys/{key.prefix}/revoke/")
    key.refresh_from_db()
    assert key.revoked_at is None
    response = reader.post(f"/keys/{key.prefix}/revoke/", follow=True)
    html = unescape(response.content.decode())
    assert "The key laptop is revoked." in html
    assert "1 inactive key" in html
    assert "Save" not in read(reader, f"/keys/{key.prefix}/")


def test_use_is_shown_against_the_limits(reader: Client, key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(tokens_per_day=10_000, cost_per_month=Decimal(5), requests_per_minute=7)
    today = prices.today()
    KeyUse.objects.create(key=key, day=today, requests=3, tokens=1_234, cost=Decimal("0.5"))
    KeyUse.objects.create(key=key, day=today - timedelta(days=40), requests=9, tokens=9_999, cost=9)
    html = read(reader, f"/keys/{key.prefix}/")
    facts = dict(re.findall(r"<dt>(.*?)</dt>\s*<dd>(.*?)</dd>", html))
    assert facts["tokens per day"] == "1\u202f234 / 10\u202f000"
    assert facts["cost per month"] == "$0.5000 / $5.00"
    assert facts["requests per minute"] == "7"
    assert "1\u202f234 tokens this month" in read(reader, "/keys/")


def test_a_budget_that_is_used_up_is_told_in_the_list_and_with_what_to_do(reader: Client, key: ApiKey) -> None:
    ApiKey.objects.filter(pk=key.pk).update(tokens_per_day=100)
    KeyUse.objects.create(key=key, day=prices.today(), requests=3, tokens=99)
    one = f"/keys/{key.prefix}/"
    assert "budget used up" not in read(reader, "/keys/") + read(reader, one)
    KeyUse.objects.filter(key=key).update(tokens=100)
    assert "budget used up" in read(reader, "/keys/")
    assert "refused until the next day or month, or until staff raise it" in read(reader, one)


def test_what_to_set_is_what_the_pages_about_the_clients_say(reader: Client, settings: Any) -> None:
    html = reader.post("/keys/", NEW).content.decode()
    for client in ("claude-code", "gemini-cli", "aider"):
        told = (settings.BASE_DIR / "docs" / "clients" / f"{client}.md").read_text()
        names = re.findall(r"^export (\w+)=", told, re.MULTILINE)
        assert len(names) == (3 if client == "claude-code" else 2)
        assert [name for name in names if f"{name}=" not in html] == []


# Recorded sessions.


def relayed(owner: Any, key: ApiKey, title: str) -> Session:
    return create_chat(owner, "Hello", "Hi", api_key=key, source="relay", title=title)


def test_its_sessions_are_seen_searched_and_exported_from_there(reader: Client, ada: Any, key: ApiKey) -> None:
    relayed(ada, key, "By key")
    create_chat(ada, "Hello", "Hi", title="By hand")
    html = read(reader, f"/keys/{key.prefix}/")
    assert f'href="/history/?key={key.prefix}"' in html
    assert f'name="key" value="{key.prefix}"' in html
    listed = read(reader, f"/history/?key={key.prefix}")
    assert "By key" in listed
    assert "By hand" not in listed.partition('id="found"')[2]
    assert f"with your key {key.prefix}" in read(reader, f"/history/export/?key={key.prefix}")


@pytest.mark.django_db(transaction=True)
async def test_an_export_has_the_sessions_of_the_key_and_no_others(
    async_client: AsyncClient, ada: Any, key: ApiKey
) -> None:
    for make in (lambda: relayed(ada, key, "By key"), lambda: create_chat(ada, "Hello", "Hi", title="By hand")):
        await sync_to_async(make)()
    await async_client.aforce_login(ada)
    exported: Any = await async_client.post("/history/export/", {"key": key.prefix, "format": "markdown"})
    text = b"".join([piece async for piece in exported.streaming_content]).decode()
    assert "By key" in text
    assert "By hand" not in text
    await sync_to_async(connections.close_all)()


def test_all_of_them_are_deleted_after_a_count_and_only_they(reader: Client, ada: Any, key: ApiKey) -> None:
    gone = [relayed(ada, key, "One"), relayed(ada, key, "Two")]
    other = keys.create(name="other", owner=ada).api_key
    kept = [relayed(ada, other, "Three"), create_chat(ada, "Hello", "Hi")]
    retention.hold(gone[1], actor=ada, reason="a dispute")
    asked = read(reader, f"/keys/{key.prefix}/forget/")
    assert "Delete 2 sessions?" in asked
    assert "1 of them is under hold" in asked
    assert Session.objects.filter(hidden_at=None).count() == 4
    response = reader.post(f"/keys/{key.prefix}/forget/", follow=True)
    assert "2 sessions are deleted." in response.content.decode()
    assert set(Session.objects.filter(hidden_at=None)) == set(kept)
    assert set(Session.objects.all()) == {*gone, *kept}, "in the trash, and the held one is kept"


# Other users.


@pytest.mark.parametrize("where", ["", "revoke/", "forget/"])
def test_for_anybody_else_the_key_does_not_exist(client: Client, bob: Any, key: ApiKey, where: str) -> None:
    client.force_login(bob)
    assert key.prefix not in read(client, "/keys/")
    address = f"/keys/{key.prefix}/{where}"
    assert client.get(address).status_code == 404
    assert client.post(address, {"name": "mine", "recording": "full"}).status_code == 404
    assert client.post(f"/keys/{key.prefix}/limits/", {}).status_code == 404
    key.refresh_from_db()
    assert (key.name, key.revoked_at) == ("laptop", None)


def test_holders_do_not_set_their_own_limits(reader: Client, key: ApiKey) -> None:
    assert "Save the limits" not in read(reader, f"/keys/{key.prefix}/")
    assert reader.post(f"/keys/{key.prefix}/limits/", {"tokens_per_day": "1"}).status_code == 404


def test_staff_who_may_set_the_limits_of_anybodys_key_and_nothing_else_of_it(
    client: Client, staff: Any, ada: Any, key: ApiKey
) -> None:
    relayed(ada, key, "Private")
    client.force_login(with_right(staff, "change_apikey"))
    assert key.prefix in read(client, "/keys/")
    html = read(client, f"/keys/{key.prefix}/")
    assert "Save the limits" in html
    assert "Recorded sessions" not in html
    assert client.post(f"/keys/{key.prefix}/", {"name": "x", "recording": "full"}).status_code == 404
    assert client.post(f"/keys/{key.prefix}/forget/").status_code == 404
    sent = {"requests_per_minute": "5", "cost_per_day": "0.25"}
    assert client.post(f"/keys/{key.prefix}/limits/", sent).status_code == 302
    key.refresh_from_db()
    assert (key.requests_per_minute, key.cost_per_day, key.tokens_per_day) == (5, Decimal("0.25"), None)
    assert client.post(f"/keys/{key.prefix}/limits/", {"requests_per_minute": "-1"}).status_code == 422
    assert client.post(f"/keys/{key.prefix}/limits/", {"cost_per_day": "-1"}).status_code == 422


def test_the_operator_may_keep_keys_to_staff(reader: Client, staff: Any, settings: Any) -> None:
    settings.PARLEY_OWN_KEYS = False
    assert "Create key" not in read(reader, "/keys/")
    assert reader.post("/keys/", NEW).status_code == 404
    reader.force_login(staff)
    assert reader.post("/keys/", NEW).status_code == 200


def test_a_list_of_keys_costs_the_same_however_many_there_are(
    reader: Client, ada: Any, django_assert_max_num_queries: Any
) -> None:
    for number in range(8):
        keys.create(name=f"key {number}", owner=ada)
    with django_assert_max_num_queries(9):
        read(reader, "/keys/")


def test_a_bad_limit_is_told_at_its_field_by_its_label(client: Client, key: ApiKey, staff: Any) -> None:
    client.force_login(with_right(staff, "change_apikey"))
    response = client.post(f"/keys/{key.prefix}/limits/", {"cost_per_day": "-3"})
    html = unescape(response.content.decode())
    assert response.status_code == 422
    assert "cost_per_day is" not in html
    [field] = [part for part in html.split('<div class="field">') if 'name="cost_per_day"' in part]
    assert "Cost per day, in US dollars" in field
    assert "Write 0 to 99,999,999, or leave it empty." in field


def test_a_key_that_only_counts_says_how_much_it_has_counted(reader: Client, ada: Any) -> None:
    key = keys.create(name="counter", owner=ada, recording="metadata").api_key
    KeyUse.objects.create(key=key, day=prices.today(), requests=41, tokens=123, cost=Decimal(0))
    html = read(reader, f"/keys/{key.prefix}/")
    assert "only counts calls: 41 this month" in html
    assert "0 sessions" not in html
    nothing = read(reader, f"/keys/{key.prefix}/forget/")
    assert "There is nothing to delete" in nothing
    assert "Delete 0" not in nothing


def test_client_settings_work_as_pasted_into_a_shell(reader: Client, settings: Any) -> None:
    settings.PARLEY_URL = "http://127.0.0.1:8123"
    html = reader.post("/keys/", NEW).content.decode()
    printed = [unescape(found) for found in re.findall(r"<pre[^>]*><code>(.*?)</code></pre>", html, re.DOTALL)]
    commands = [text for text in printed if "export " in text]  # Codex has a file instead
    assert (len(printed), len(commands)) == (6, 5)
    for pasted in commands:
        # A program that is started afterwards has to see the variables.
        run = ["bash", "-c", f"{pasted}\nenv"]
        seen = subprocess.run(run, env={"PATH": os.environ["PATH"]}, capture_output=True, text=True, check=True).stdout
        assert "BASE" in seen
        assert "=http://127.0.0.1:8123" in seen
        assert "=parley_" in seen
