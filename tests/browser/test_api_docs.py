"""The reference page of the REST API in a real browser."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import LOOKS, end_transitions, find_violations, picture, wear

pytestmark = pytest.mark.browser

# Swagger UI brings a <main> of its own inside ours and starts its headings at <h3>.
SWAGGER_MARKUP = ("heading-order", "landmark-main-is-top-level", "landmark-no-duplicate-main", "landmark-unique")


def test_the_api_reference_works_under_the_csp_of_all_pages(page: Page, request: pytest.FixtureRequest) -> None:
    """The console stays silent: a style or script that the policy blocks would be an error there."""
    response = page.goto("/api/docs")
    assert response is not None
    assert "unsafe" not in response.headers["content-security-policy"]
    operation = page.locator("#operations-history-change_session")
    expect(operation).to_be_visible()
    check_in_every_look(page, "api-docs", request)
    operation.locator("button").first.click()
    expect(operation.get_by_text("Change the title, pin or archive a session.")).to_be_visible()
    check_in_every_look(page, "api-docs-operation", request)


def check_in_every_look(page: Page, name: str, request: pytest.FixtureRequest) -> None:
    rules = {rule: {"enabled": False} for rule in SWAGGER_MARKUP}
    for width, scheme in LOOKS:
        wear(page, (width, scheme))
        end_transitions(page)
        if request.config.getoption("--pictures"):
            picture(page, f"{name}-{width}-{scheme}")
        report = find_violations(page, rules=rules)
        assert report.violations_count == 0, f"{name}-{width}-{scheme}: {report.generate_report()}"
        assert page.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), width
