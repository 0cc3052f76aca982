"""The page of providers in a real browser: what is there, and the button that tries it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from project.accounts.models import User
from relay.providers import registry
from tests.browser.conftest import enter
from tests.vendors import KEYS, Vendors, refuses, says

pytestmark = pytest.mark.browser
See = Callable[[str], None]


@pytest.fixture(autouse=True)
def _two_vendors(vendors: Vendors, settings: Any) -> None:
    settings.ANTHROPIC_API_KEY, settings.ANTHROPIC_BASE_URL = KEYS["anthropic"], vendors.url
    settings.GEMINI_API_KEY, settings.GOOGLE_GEMINI_BASE_URL = KEYS["gemini"], vendors.url
    vendors.models["anthropic"] = [{"id": "claude-x", "display_name": "Claude X", "max_input_tokens": 200_000}]
    can = {"supportedGenerationMethods": ["generateContent"], "inputTokenLimit": 1_048_576}
    vendors.models["gemini"] = [{"name": f"models/gemini-{word}", **can} for word in ("flash", "pro")]
    # Not in this thread, where Playwright has its own loop.
    thread = threading.Thread(target=registry.router().catalogue.refresh)
    thread.start()
    thread.join()


def test_staff_try_a_provider_that_works_and_one_that_does_not(
    page: Page, site: str, see: See, staff: User, vendors: Vendors
) -> None:
    vendors.plays("anthropic-messages", says("OK"))
    vendors.plays("gemini-generate", refuses("billing", "You have run out of credit."))
    enter(page, site, staff)
    page.goto("/providers/")
    see("providers")
    page.get_by_role("button", name="Test · Anthropic").click()
    expect(page.get_by_text("It works.")).to_be_visible()
    page.get_by_label("Model of Google Gemini").select_option("gemini-pro")
    page.get_by_role("button", name="Test · Google Gemini").click()
    expect(page.get_by_text("The account has no credit left")).to_be_visible()
    expect(page.get_by_label("Model of Google Gemini")).to_have_value("gemini-pro")
    expect(page.get_by_role("button", name="Test · Google Gemini")).to_be_focused()
    see("providers-tried")


def test_it_works_without_javascript(plain: Page, site: str, staff: User) -> None:
    enter(plain, site, staff)
    plain.goto("/providers/")
    plain.get_by_role("button", name="Test · Anthropic").click()
    expect(plain.get_by_text("It works.")).to_be_visible()
