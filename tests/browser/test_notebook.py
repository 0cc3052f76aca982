"""The notebook in a real browser: written, changed by the agent, restored."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from relay.models import Agent
from relay.tools.built_in import notebooks
from tests.browser.conftest import enter

pytestmark = pytest.mark.browser


def test_a_person_writes_sees_what_the_agent_changed_and_takes_it_back(
    page: Page, site: str, ada: Any, see: Callable[[str], None]
) -> None:
    Agent.objects.get_or_create(name="assistant", defaults={"label": "Assistant"})
    enter(page, site, ada)
    page.goto("/notebook/")
    page.get_by_role("link", name="Assistant").click()
    page.get_by_label("Notes about you").fill("# Ada\n\n- Likes tea.\n- Lives in London.")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_text("Notebook saved.")).to_be_visible()
    notebooks.write(ada, "assistant", "# Ada\n\n- Likes coffee.\n- Lives in London.", seen=1, by_agent=True)
    page.reload()
    expect(page.locator("ins").first).to_have_text("- Likes coffee.")
    expect(page.get_by_text("written by the agent assistant")).to_be_visible()
    see("notebook")
    page.locator(".version").nth(1).locator("summary").press("Enter")
    page.get_by_role("button", name="Restore this version").press("Enter")
    expect(page.get_by_text("Version restored.")).to_be_visible()
    assert notebooks.read(ada, "assistant").content.splitlines()[2] == "- Likes tea."
