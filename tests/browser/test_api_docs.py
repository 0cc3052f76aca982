"""The documentation of the REST API in a real browser."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser


def test_an_operation_is_found_with_its_examples_and_fields(page: Page, see: Callable[[str], None]) -> None:
    page.goto("/api/docs")
    see("api-docs")
    page.get_by_role("navigation", name="Operations").get_by_role("link", name="PATCH").click()
    operation = page.get_by_role("region", name="Change a session")
    expect(operation.get_by_text("curl -X PATCH")).to_be_in_viewport()
    operation.get_by_text("Answer", exact=True).click()
    expect(operation.get_by_role("cell", name="tool_call_count")).to_be_visible()
    see("api-docs-operation")
