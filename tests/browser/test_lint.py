"""The linter in a browser: pasted, judged, compared and copied; on a phone one below the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import enter
from tests.history.pages.test_lint import UNANSWERED

pytestmark = pytest.mark.browser

See = Callable[[str], None]


@pytest.mark.parametrize("look", [(1280, "light"), (390, "dark")], indirect=True, ids=["1280", "390"])
def test_a_conversation_is_pasted_judged_compared_and_copied(signed_in: Page, see: See, look: tuple[int, str]) -> None:
    signed_in.goto("/lint/")
    see("lint")
    signed_in.get_by_label("A conversation as JSON").fill(json.dumps(UNANSWERED))
    signed_in.get_by_role("button", name="Check").first.click()
    expect(signed_in.locator(".lint-verdict.rejected")).to_have_count(4)
    expect(signed_in.locator("#found-gemini-generate")).to_contain_text("messages[1].tool_calls[0]")
    see("lint-report")
    sides = [signed_in.locator(name).bounding_box() for name in ("#lint-given", "#lint-repaired")]
    assert sides[0] is not None
    assert sides[1] is not None
    assert (sides[0]["y"] == sides[1]["y"]) == (look[0] > 900)
    signed_in.locator("summary", has_text="Anthropic Messages").click()
    button = signed_in.locator(".lint-repaired[open] [data-copy-beside]")
    button.click()
    expect(button).to_have_text("Copied")


def test_it_works_without_javascript(plain: Page, site: str, ada: Any) -> None:
    page = plain
    enter(page, site, ada)
    page.goto("/lint/")
    page.get_by_label("A conversation as JSON").fill(json.dumps(UNANSWERED))
    page.get_by_role("button", name="Check").first.click()
    expect(page.locator(".lint-verdict.rejected")).to_have_count(4)
    expect(page.locator("[data-copy-beside]").first).to_be_hidden()
