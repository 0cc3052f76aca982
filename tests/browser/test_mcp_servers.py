"""The staff's pages of MCP servers in a real browser: one is set in the admin, looked at, and tells what it offers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from project.accounts.models import User
from relay.models import McpServer
from relay.tools.mcp import connections
from tests.browser.conftest import enter, judge
from tests.relay.tools.mcp.test_using import HERE

pytestmark = [pytest.mark.browser, pytest.mark.any_database]
See = Callable[[str], None]


@pytest.fixture(autouse=True)
def _with_programs(settings: Any) -> Iterator[None]:
    settings.PARLEY_MCP_COMMANDS = True
    yield
    connections.close()


def test_staff_set_a_server_look_at_it_and_see_what_it_offers(
    page: Page, see: See, site: str, admin_user: User
) -> None:
    enter(page, site, admin_user)
    # In a tab of its own: what axe says to the console about Django's style sheets is no fault of ours.
    admin = page.context.new_page()
    admin.goto("/mcp-servers/")
    expect(admin.get_by_text("No MCP servers yet.")).to_be_visible()
    admin.get_by_role("link", name="Add or change servers").click()
    admin.get_by_role("link", name="Add MCP server").first.click()
    admin.get_by_role("textbox", name="Name:", exact=True).fill("files")
    admin.get_by_label("Connection").select_option("stdio")
    admin.get_by_label("Program:").fill(sys.executable)
    admin.get_by_label("Arguments").fill(f"{HERE / 'faulty_server.py'}\nhangs")
    judge(admin, "mcp-server-admin")
    admin.get_by_role("button", name="Save", exact=True).click()
    expect(admin.get_by_role("link", name="files", exact=True).first).to_be_visible()
    page.goto("/mcp-servers/")
    expect(page.get_by_text("Not connected yet")).to_be_visible()
    page.get_by_role("button", name="Connect · files").press("Enter")
    expect(page.get_by_role("status")).to_contain_text("Last answer")
    expect(page.get_by_role("button", name="Connect · files")).to_be_focused()
    page.get_by_text("2 tools").click()
    expect(page.get_by_text("files__habit")).to_be_visible()
    see("mcp-servers")


def test_a_server_that_cannot_be_reached_says_why_also_without_javascript(plain: Page, site: str, staff: User) -> None:
    McpServer.objects.create(name="gone", transport="stdio", command="/nowhere/to/be/found")
    enter(plain, site, staff)
    plain.goto("/mcp-servers/")
    plain.get_by_role("button", name="Connect · gone").click()
    expect(plain.get_by_role("status")).to_contain_text("gone cannot be used")
