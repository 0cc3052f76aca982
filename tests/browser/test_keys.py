"""The page of keys in a real browser: made, seen once, changed and emptied by keyboard, at every width."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest
from django.utils import timezone
from playwright.sync_api import Page, expect

from history.access import keys
from history.models import ApiKey, Session
from relay.live import groups
from relay.models import Allowance, KeyArrival, KeyUse, PlanLimits
from relay.usage import prices
from tests.browser.conftest import enter
from tests.factories import create_chat

pytestmark = pytest.mark.browser
See = Callable[[str], None]


def test_a_key_is_made_and_shown_once_by_keyboard(page: Page, see: See, site: str, ada: Any) -> None:
    enter(page, site, ada)
    page.goto("/keys/")
    see("keys-none")
    page.get_by_label("Name").fill("Claude Code")
    page.get_by_label("Name").press("Tab")
    expect(page.get_by_role("radio", name="everything, credentials removed")).to_be_focused()
    page.keyboard.press("ArrowDown")
    expect(page.get_by_role("radio", name="everything full")).to_be_checked()
    page.get_by_label("Name").press("Enter")
    field = page.get_by_label("The key", exact=True)
    expect(field).to_be_focused()
    made = keys.authenticate(field.input_value())
    assert (made.name, made.recording) == ("Claude Code", "full")
    see("keys-made")
    page.goto("/keys/")
    expect(page.get_by_role("link", name="Claude Code")).to_be_visible()
    expect(page.get_by_label("The key", exact=True)).to_have_count(0)


def test_a_holder_changes_what_is_kept_and_deletes_what_was(page: Page, see: See, site: str, ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada, tokens_per_month=2_000_000, cost_per_day=Decimal(3)).api_key
    KeyUse.objects.create(key=key, day=prices.today(), requests=41, tokens=123_456, cost=Decimal("0.4321"))
    for number in range(3):
        create_chat(ada, "Hello", "Hi", api_key=key, source="relay", title=f"Relayed {number}")
    enter(page, site, ada)
    page.goto("/keys/")
    page.get_by_role("link", name="laptop").press("Enter")
    see("key")
    page.get_by_role("radio", name="times and counts only").check()
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("takes effect within a second")).to_be_visible()
    assert ApiKey.objects.get().recording == "metadata"
    page.get_by_role("link", name="Delete all").press("Enter")
    see("key-forget")
    page.get_by_role("button", name="Delete 3 sessions").press("Enter")
    expect(page.get_by_text("3 sessions are deleted.")).to_be_visible()
    assert not Session.objects.filter(hidden_at=None).exists()
    page.get_by_role("link", name="Revoke key").click()
    page.get_by_role("button", name="Revoke key").click()
    expect(page.get_by_text("The key laptop is revoked.")).to_be_visible()


def test_a_key_that_was_just_made_is_not_made_again_by_reloading(page: Page, site: str, ada: Any) -> None:
    enter(page, site, ada)
    page.goto("/keys/")
    page.get_by_label("Name").fill("Claude Code")
    page.get_by_role("button", name="Create key").click()
    expect(page.get_by_label("The key", exact=True)).to_be_visible()
    page.reload()
    expect(page.get_by_text("This form has already created its key")).to_be_visible()
    assert ApiKey.objects.count() == 1


@pytest.mark.parametrize("look", [(390, "light")], indirect=True)
def test_a_long_name_and_the_settings_for_programs_fit_a_phone(page: Page, see: See, site: str, ada: Any) -> None:
    keys.create(name="ci-runner-of-the-nightly-build-" * 3, owner=ada)
    Allowance.objects.create(user=ada, tokens_per_day=5_000)
    enter(page, site, ada)
    page.goto("/keys/")
    page.get_by_label("Name").fill("a rather long name of many words that goes on and on " * 2)
    page.get_by_role("button", name="Create key").click()
    page.get_by_text("Set up a client").click()
    see("keys-made-open")
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.locator(".client").filter(has_text="Claude Code").get_by_role("button", name="Copy").click()
    expect(page.get_by_role("button", name="Copied")).to_be_visible()
    secret = page.get_by_label("The key", exact=True).input_value()
    assert secret in page.evaluate("navigator.clipboard.readText()")


def test_the_list_shows_that_a_key_was_used_without_a_reload(page: Page, site: str, ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    enter(page, site, ada)
    page.goto("/keys/")
    expect(page.get_by_text("never used")).to_be_visible()
    ApiKey.objects.filter(pk=key.pk).update(last_used_at=timezone.now())
    session = create_chat(ada, "Hello", "Hi", api_key=key, source="relay")
    for _ in range(20):  # until the page listens
        groups.notify_sidebar(ada.pk, session.pk)
        page.wait_for_timeout(250)
        if not page.get_by_text("never used").count():
            break
    expect(page.get_by_text("never used")).to_have_count(0)
    expect(page.get_by_role("link", name="1 session")).to_be_visible()


def test_the_test_of_a_client_shows_which_credential_arrived(page: Page, see: See, site: str, ada: Any) -> None:
    key = keys.create(name="laptop", owner=ada).api_key
    enter(page, site, ada)
    page.goto(f"/keys/{key.prefix}/")
    expect(page.get_by_text("No call has arrived yet.")).to_be_visible()
    arrival = {"at": timezone.now(), "key_header": "x-parley-key", "has_login": True, "has_account": True}
    KeyArrival.objects.create(key=key, client="Codex", **arrival)
    name, long = "x-codex-primary-used-percent", "anthropic-ratelimit-unified-representative-claim"
    PlanLimits.objects.create(key=key, provider="plan", headers={name: "12", long: "five_hour"}, at=timezone.now())
    page.get_by_label("Name").fill("unsaved")
    page.get_by_role("link", name="Test", exact=True).press("Enter")
    expect(page.get_by_text("in Authorization, with an account")).to_be_visible()
    expect(page.get_by_text(name)).to_be_visible()
    expect(page.get_by_label("Name")).to_have_value("unsaved")
    see("key-arrival")
