"""The linter in a browser: pasted, judged, compared and copied; on a phone one below the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Browser, Page, expect

from tests.linting.test_page import UNANSWERED

pytestmark = pytest.mark.browser

See = Callable[[str], None]


@pytest.fixture
def signed_in(page: Page, site: str, ada: Any) -> Page:
    client = Client()
    client.force_login(ada)
    page.context.add_cookies([{"name": "parley_session", "value": client.cookies["parley_session"].value, "url": site}])
    return page


@pytest.mark.parametrize("look", [(1280, "light"), (390, "dark")], indirect=True, ids=["1280", "390"])
def test_a_conversation_is_pasted_judged_compared_and_copied(signed_in: Page, see: See, look: tuple[int, str]) -> None:
    signed_in.goto("/lint/")
    see("lint")
    signed_in.get_by_label("A conversation as JSON").fill(json.dumps(UNANSWERED))
    signed_in.get_by_role("button", name="Look at it").first.click()
    expect(signed_in.locator(".lint-verdict.rejected")).to_have_count(4)
    expect(signed_in.locator("#found-gemini-generate")).to_contain_text("messages[1].tool_calls[0]")
    see("lint-report")
    sides = [signed_in.locator(name).bounding_box() for name in ("#lint-given", "#lint-repaired")]
    assert sides[0] is not None
    assert sides[1] is not None
    assert (sides[0]["y"] == sides[1]["y"]) == (look[0] > 900)
    signed_in.locator("summary", has_text="Anthropic Messages").click()
    button = signed_in.locator(".lint-repaired[open] [data-copy-json]")
    button.click()
    expect(button).to_have_text("Copied")


def test_it_works_without_javascript(browser: Browser, site: str, ada: Any) -> None:
    client = Client()
    client.force_login(ada)
    context = browser.new_context(base_url=site, java_script_enabled=False)
    context.add_cookies([{"name": "parley_session", "value": client.cookies["parley_session"].value, "url": site}])
    page = context.new_page()
    page.goto("/lint/")
    page.get_by_label("A conversation as JSON").fill(json.dumps(UNANSWERED))
    page.get_by_role("button", name="Look at it").first.click()
    expect(page.locator(".lint-verdict.rejected")).to_have_count(4)
    expect(page.locator("[data-copy-json]").first).to_be_hidden()
    context.close()
