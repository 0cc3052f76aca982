"""MCP servers in the hands of the staff: set in the admin, looked at on their page, ticked at an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from django.test import Client

from project.accounts.models import User
from relay.admin.mcp_servers import HIDDEN
from relay.models import McpServer
from relay.tools.mcp import connections, servers
from relay.tools.mcp.config import unseal
from tests.relay.tools.mcp.test_using import HERE, SECRET
from tests.servers.processes import load_settings

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]
ADD = "/admin/relay/mcpserver/add/"


@pytest.fixture
def chief(client: Client, django_user_model: type[User], settings: Any) -> Iterator[Client]:
    settings.PARLEY_MCP_COMMANDS = True
    client.force_login(django_user_model.objects.create_superuser("chief", password="x"))
    yield client
    connections.close()


def form(**fields: Any) -> dict[str, Any]:
    return {
        "name": "files",
        "transport": "stdio",
        "command": sys.executable,
        "arguments": f"{HERE / 'faulty_server.py'}\nhangs",
        "environment": f"TOKEN={SECRET}\nLEVEL=1",
        "url": "",
        "headers": "",
        "seconds": "30",
        "is_enabled": "on",
        **fields,
    }


def test_a_server_is_set_and_its_secrets_are_not_shown_again(chief: Client) -> None:
    assert chief.post(ADD, form()).status_code == 302
    row = McpServer.objects.get()
    page = f"/admin/relay/mcpserver/{row.pk}/change/"
    shown = chief.get(page).content.decode()
    assert f"TOKEN={HIDDEN}" in shown
    assert SECRET not in shown
    assert "has all rights of the user" in shown
    chief.post(page, form(environment=f"TOKEN={HIDDEN}\nLEVEL=2", arguments="one\n two\n"))
    row.refresh_from_db()
    assert unseal(row.environment) == {"TOKEN": SECRET, "LEVEL": "2"}
    assert row.arguments == ["one", " two"]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("name", "My Files", "Lowercase letters"),
        ("command", "", "Enter a program."),
        ("environment", "no sign", "Write one per line"),
        ("environment", f"NEW={HIDDEN}", "No value is stored for NEW"),
    ],
)
def test_what_makes_no_sense_is_refused_with_words(chief: Client, field: str, value: str, words: str) -> None:
    assert words in chief.post(ADD, form(**{field: value})).content.decode()
    assert not McpServer.objects.exists()


def test_an_address_must_be_one(chief: Client) -> None:
    assert "Enter a URL" in chief.post(ADD, form(transport="http", url="tools.example")).content.decode()


def test_staff_look_at_a_server_and_tick_its_tools_at_an_agent(chief: Client) -> None:
    chief.post(ADD, form())
    assert "Not connected yet" in chief.get("/mcp-servers/").content.decode()
    looked = chief.post("/mcp-servers/files/look/", headers={"HX-Request": "true"}).content.decode()
    assert "files__habit" in looked
    assert "2 tools" in chief.post("/mcp-servers/files/look/", follow=True).content.decode()
    assert "files__fine" in chief.get("/admin/relay/agent/add/").content.decode()


def test_for_others_there_is_no_such_page_and_staff_need_a_permission_to_set_one(
    client: Client, ada: User, staff: User
) -> None:
    client.force_login(ada)
    assert client.get("/mcp-servers/").status_code == 404
    assert client.post("/mcp-servers/files/look/").status_code == 404
    client.force_login(staff)
    assert client.get("/mcp-servers/").status_code == 200
    assert client.post(ADD, form()).status_code == 403


def test_programs_are_off_by_default_and_the_pages_say_so(chief: Client, settings: Any) -> None:
    assert load_settings()["PARLEY_MCP_COMMANDS"] is False
    kept = {"tools": [{"name": "old__x", "tool": "x", "description": "", "parameters": {}}], "command": sys.executable}
    old = McpServer.objects.create(name="old", transport="stdio", **kept)
    McpServer.objects.create(name="far", transport="http", url="http://tools.example/mcp")
    assert [tool.name for tool in servers.all_tools()] == ["old__x"]
    settings.PARLEY_MCP_COMMANDS = False
    refused = chief.post(ADD, form()).content.decode()
    assert "does not run programs" in refused
    assert not McpServer.objects.filter(name="files").exists()
    assert chief.post(ADD, form(is_enabled="")).status_code == 302, "it may be prepared"
    for page in ("/mcp-servers/", "/admin/relay/mcpserver/", f"/admin/relay/mcpserver/{old.pk}/change/", ADD):
        assert "set PARLEY_MCP_COMMANDS=on" in chief.get(page).content.decode(), page
    assert servers.all_tools() == []
    assert "PARLEY_MCP_COMMANDS is off" in servers.refresh_tool_list(old).problem
