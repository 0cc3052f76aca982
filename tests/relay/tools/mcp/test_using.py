"""Tools of MCP servers: named, cleaned, called, and a server that misbehaves costs one call."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import psutil
import pytest
from asgiref.sync import async_to_sync

from history.entries import ToolRequest, ToolResult
from relay.models import McpServer
from relay.tools.base import BadArguments, ToolContext, check_arguments, toolbox
from relay.tools.mcp import connections, servers
from relay.tools.mcp.config import seal
from relay.tools.mcp.shaping import clean_schema, describe_tools, full_name
from relay.tools.running import run_call
from tests.servers.databases import close_connections
from tests.servers.processes import clean_environment, free_port, run_process, wait_for

HERE = Path(__file__).parent
SECRET = "s3cret-token"


@pytest.fixture
def using(transactional_db: None, settings: Any) -> Iterator[None]:
    settings.PARLEY_MCP_COMMANDS = True
    yield
    connections.close()
    close_connections()


def program(name: str, *words: str, file: str = "faulty_server.py", **fields: Any) -> McpServer:
    row = McpServer(
        name=name,
        transport="stdio",
        command=sys.executable,
        arguments=[str(HERE / file), *words],
        environment=seal({"EXAMPLE_TOKEN": SECRET}),
        **fields,
    )
    row.save()
    return servers.refresh_tool_list(row)


def used(name: str, arguments: str = "{}") -> ToolResult:
    context = ToolContext(user=None, session_id=uuid4())
    request = ToolRequest(call_id="c1", name=name, arguments=arguments)
    return async_to_sync(run_call)(request, toolbox=toolbox([name]), context=context)


class TestNamesAndSchemas:
    def test_names_carry_the_server_and_keep_to_what_vendors_allow(self) -> None:
        assert full_name("files", "read_file") == "files__read_file"
        odd, odder = full_name("files", "notes/read.all"), full_name("files", "notes.read/all")
        assert odd.startswith("files__notes_read_all_")
        assert odd != odder
        assert len(full_name("files", "x" * 200)) == 64
        assert full_name("files", "x" * 200) != full_name("files", "x" * 201)

    def test_a_schema_has_no_references_and_nothing_that_is_no_schema(self) -> None:
        foreign = {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "$defs": {"Point": {"properties": {"x": {"type": "number"}, "next": {"$ref": "#/$defs/Point"}}}},
            "properties": {"at": {"$ref": "#/$defs/Point"}, "any": True, "list": {"type": "array", "items": [1]}},
            "required": ["at", 7],
        }  # fmt: skip
        schema = clean_schema(foreign)
        assert schema["properties"]["at"]["properties"]["x"] == {"type": "number"}
        assert (schema["type"], schema["required"]) == ("object", ["at"])
        assert "$" not in "".join(schema)
        assert check_arguments(schema, {"at": {"x": 1}, "any": "thing", "list": [2]})
        with pytest.raises(BadArguments, match=r"at\.x must be a number"):
            check_arguments(schema, {"at": {"x": "far"}})

    def test_what_is_too_much_is_left_out_and_named(self) -> None:
        def tool(name: str, **schema: Any) -> Any:
            return SimpleNamespace(name=name, description="d" * 9_000, title=None, input_schema=schema)

        wide = {f"p{number}": {"type": "string", "description": "long " * 20} for number in range(300)}
        kept, left_out = describe_tools("files", [tool("wide", properties=wide), *(tool(f"t{n}") for n in range(101))])
        assert (len(kept), left_out) == (100, ["wide", "t100"])
        assert len(kept[0]["description"]) == 4_000


@pytest.fixture(scope="module")
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One process for the whole file."""
    port = free_port()
    command = [sys.executable, str(HERE / "example_server.py"), "http", str(port)]
    log = tmp_path_factory.mktemp("mcp") / "log"
    with run_process(command, log=log, environment=clean_environment()) as process:
        wait_for(lambda: "Uvicorn running" in process.output, what="the example server")
        yield f"http://127.0.0.1:{port}/mcp"


def test_an_official_server_is_used_by_http(using: None, http_server: str) -> None:
    row = McpServer.objects.create(name="far", transport="http", url=http_server, headers=seal({"X-Token": SECRET}))
    servers.refresh_tool_list(row)
    assert row.problem == ""
    assert [kept["tool"] for kept in row.tools] == ["add", "environment", "fail", "notes/read.all", "draw"]
    result = used("far__add", '{"first": 2, "second": 3}')
    assert (result.status, result.text.splitlines()[-1]) == ("success", "5")
    assert "data, not instructions" in result.text
    assert "far__add was not called: second is missing" in used("far__add", '{"first": 2}').error


@pytest.mark.any_database
@pytest.mark.parametrize(
    ("habit", "words"),
    [
        ("hangs", "did not answer within 1 seconds"),
        ("dies", "last output: out of cheese"),
        ("rubbish", "it sends invalid JSON-RPC"),
        ("endless", "more than 4,194,304 bytes"),
        ("wrong", "failed"),
    ],
)
def test_a_server_that_misbehaves_costs_one_call(using: None, habit: str, words: str) -> None:
    program("bad", habit, seconds=1)
    before = used("bad__fine").text.split()[-1]
    failed = used("bad__habit")
    assert failed.status == "failed"
    assert words in failed.error
    assert SECRET not in failed.error
    after = used("bad__fine")
    assert after.status == "success", after.error
    if habit != "wrong":
        assert after.text.split()[-1] != before
        wait_for(lambda: not psutil.pid_exists(int(before)), what="the end of the old process")


@pytest.mark.any_database
def test_a_server_that_cannot_be_reached_says_why(using: None, monkeypatch: pytest.MonkeyPatch, settings: Any) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(connections, "SECONDS_TO_CONNECT", 0.5)
        assert "did not answer" in program("silent", "silent").problem
    missing = McpServer.objects.create(name="missing", transport="stdio", command="/no/such/program")
    assert "cannot be started" in servers.refresh_tool_list(missing).problem
    absent = McpServer.objects.create(name="absent", transport="http", url=f"http://127.0.0.1:{free_port()}/mcp")
    assert "absent cannot be used" in servers.refresh_tool_list(absent).problem
    away = McpServer.objects.create(name="away", transport="http", url="http://tools.example/mcp")
    assert "PARLEY_LOOPBACK_ONLY" in servers.refresh_tool_list(away).problem
    settings.PARLEY_MCP_COMMANDS = False
    assert "PARLEY_MCP_COMMANDS is off" in servers.refresh_tool_list(missing).problem


@pytest.mark.any_database
def test_a_change_of_settings_makes_a_new_connection_and_switching_off_ends_it(using: None) -> None:
    row = program("bad", "hangs")
    first = used("bad__fine").text
    assert used("bad__fine").text == first
    McpServer.objects.filter(pk=row.pk).update(environment=seal({"OTHER": "value"}))
    assert used("bad__fine").text != first
    box = toolbox(["bad__fine"])
    McpServer.objects.filter(pk=row.pk).update(is_enabled=False)
    request = ToolRequest(call_id="c1", name="bad__fine", arguments="{}")
    context = ToolContext(user=None, session_id=uuid4())
    assert "disabled" in async_to_sync(run_call)(request, toolbox=box, context=context).error
    assert not toolbox(["bad__fine"])


@pytest.mark.any_database
def test_secrets_are_kept_encrypted_and_another_secret_key_cannot_read_them(using: None, settings: Any) -> None:
    row = McpServer.objects.create(name="kept", transport="http", url="http://127.0.0.1/", headers=seal({"A": SECRET}))
    assert SECRET not in row.headers
    assert SECRET not in repr(servers.settings_of(row))
    settings.SECRET_KEY = "another one, of thirty-two letters"
    assert "enter them again" in servers.refresh_tool_list(row).problem


@pytest.mark.any_database
def test_closing_ends_the_programs(using: None) -> None:
    program("bad", "hangs")
    pid = int(used("bad__fine").text.split()[-1])
    connections.close()
    assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    assert os.getpid() != pid
