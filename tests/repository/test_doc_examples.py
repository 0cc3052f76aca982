"""Every code block of the pages that newcomers copy from runs as it is printed, against a real server."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from http.client import HTTPResponse
from io import StringIO
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch
from urllib.request import Request, urlopen

import psutil
import pytest

from tests.servers.databases import create_empty_database
from tests.servers.installation import IMPATIENT_APP, Installation, Server, create_installation
from tests.servers.processes import ROOT, Process, clean_environment, free_port, is_answering, run_process, wait_for
from tests.servers.redis import redis_server
from tests.vendors import says

pytestmark = [pytest.mark.any_database, pytest.mark.runs_first]

SCOPES = ("relay", "read", "write", "delete", "export", "import")
# What an operation of docs/rest.md prints, as a part of it that shows the right answer.
PRINTED = {
    "List sessions": "What is a loom?",
    "Read a session": "punched cards",
    "Read messages": "punched cards",
    "Read a complete message": "tools_offered",
    "Read an exchange": "done",
    "Search": "punched cards",
    "Export": '"type":"end"',
}
# The same of a recipe of docs/cookbook.md.
PRINTED_BY_RECIPE = {
    "How to call a model with the OpenAI SDK": "Hello.",
    "How to call a model with the Anthropic SDK": "Hello.",
    "How to call a model with the Gemini SDK": "Hello.",
    "How to list sessions": "What is a loom?",
    "How to import a file": "done",
    "How to send a chat message": "Hello.",
}
# `claude` for the example of its page: one request of Claude Code with the variables that the example exports.
CLAUDE = """#!/bin/sh
exec curl --fail-with-body --silent "$ANTHROPIC_BASE_URL/v1/messages?beta=true" \
  -H "Authorization: Bearer $ANTHROPIC_AUTH_TOKEN" -H "anthropic-version: 2023-06-01" \
  -H "Content-Type: application/json" \
  -d '{"model": "model", "max_tokens": 100, "messages": [{"role": "user", "content": "Hello!"}]}'
"""
# `claude mcp add --transport http parley <url> --header "Authorization: …"`
CLAUDE_MCP = """#!/bin/sh
test "$1 $2 $3 $4 $5" = "mcp add --transport http parley" && test "$7" = --header || exit 2
echo "$6"; echo "$8"
"""
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}},
}


class Block(NamedTuple):
    heading: str
    language: str
    code: str


@cache
def blocks(page: str) -> list[Block]:
    found, heading, lines = [], "", iter((ROOT / page).read_text(encoding="utf-8").splitlines())
    for line in lines:
        if line.startswith("#"):
            heading = line.lstrip("# ")
        elif line.startswith("```"):
            code = []
            for inner in lines:
                if inner.startswith("```"):
                    break
                code.append(inner)
            found.append(Block(heading, line.removeprefix("```"), "\n".join(code) + "\n"))
    return found


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory, own_database: None) -> Iterator[Installation]:
    with create_installation(tmp_path_factory.mktemp("examples"), scopes=SCOPES) as installation:
        yield installation


@pytest.fixture(scope="module")
def administrator(installation: Installation) -> None:
    """The first staff user, to whom keys and imports belong without `--owner`."""
    created = installation.manage("createsuperuser", "--noinput", "--username", "grace", "--email", "g@example.org")
    assert created.returncode == 0, created.stderr


@pytest.fixture(scope="module")
def server(installation: Installation) -> Iterator[Server]:
    with installation.serving("daphne", application=IMPATIENT_APP) as server:
        yield server


@pytest.fixture(autouse=True)
def _no_sockets_stay_open(installation: Installation) -> Iterator[None]:
    yield
    installation.close_sockets()
    installation.vendors.forget()


def post_json(url: str, key: str, body: object, **headers: str) -> HTTPResponse:
    content = {"Content-Type": "application/json", "Authorization": f"Bearer {key}", **headers}
    response: HTTPResponse = urlopen(Request(url, data=json.dumps(body).encode(), headers=content), timeout=30)
    return response


def run(command: list[str], **variables: str) -> str:
    """What the command prints. It has to succeed."""
    environment = clean_environment(**variables)
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


def run_python(code: str, **variables: str) -> str:
    """The same for Python, run in this process: it has imported the vendors' SDKs, which takes a second for each."""
    printed = StringIO()
    with patch.dict(os.environ, clean_environment(**variables), clear=True), redirect_stdout(printed):
        exec(compile(code, "<example>", "exec"), {"__name__": "__main__"})
    return printed.getvalue()


def run_example(language: str, code: str, **variables: str) -> str:
    return run(["sh", "-ec", code], **variables) if language == "sh" else run_python(code, **variables)


def in_this_environment(code: str) -> str:
    """The code with the programs of the environment that runs the tests, which need not be `.venv`."""
    return code.replace(".venv/bin/", f"{shlex.quote(str(Path(sys.executable).parent))}/")


@pytest.fixture
def rest_variables(installation: Installation, server: Server, tmp_path: Path) -> dict[str, str]:
    """The variables that docs/rest.md names: a session of three turns, a relayed call, a file to import."""
    program, url, key = installation.program(server), f"http://127.0.0.1:{server.port}", installation.ada.key
    for text in ("Who made punched cards? " * 500, "Tell me about punched cards.", "And the cards of today?"):
        sent = program.request("send", text=text)
        program.ended(sent["run"])
    program.request("rename", title="About punched cards")
    body = {"model": "model", "messages": [{"role": "user", "content": "What is a loom?"}]}
    with post_json(f"{url}/v1/chat/completions", key, body) as response:
        exchange = response.headers["X-Parley-Exchange-Id"]
    variables = {"PARLEY": url, "KEY": key, "SESSION": sent["session_id"], "EXCHANGE": exchange}
    variables["FILE"] = str(tmp_path / "conversations.jsonl")
    export = f"{url}/api/history/export?format=jsonl&session={sent['session_id']}"
    run(["curl", "--fail", "--silent", "--header", f"Authorization: Bearer {key}", "-o", variables["FILE"], export])
    return variables | silent_curl(tmp_path)


@pytest.mark.parametrize("language", ["sh", "python"])
def test_every_example_of_the_rest_api_runs(
    language: str, installation: Installation, rest_variables: dict[str, str], tmp_path: Path
) -> None:
    installation.plays(says("A summary about punched cards."))
    preamble, variables = "", rest_variables
    wait_until_digested(variables)
    examples = [block for block in blocks("docs/rest.md") if block.language == language]
    last = [block for block in examples if block.heading == "Delete a session"]
    for heading, _, code in [block for block in examples if block not in last] + last:
        if heading == "Operations":  # the beginning of every Python example
            names = ("SESSION", "EXCHANGE", "FILE", "IMPORT", "SUMMARY")
            preamble = code + "".join(f"{name} = os.environ.get({name!r})\n" for name in names)
            continue
        code = code.replace("-o history.jsonl.gz", f"-o {tmp_path / 'history.jsonl.gz'}")
        printed = run_example(language, code if language == "sh" else preamble + code, **variables)
        if heading == "Export" and language == "sh":
            printed = gzip.decompress((tmp_path / "history.jsonl.gz").read_bytes()).decode()
        assert PRINTED.get(heading, "") in printed, heading
        if heading == "Summarise older messages":
            variables |= {"SUMMARY": re.findall(r"\d+", printed)[0]}
        elif heading == "Import a file":
            variables |= {"IMPORT": re.findall(r"[0-9a-f-]{36}", printed)[0]}
    assert {block.heading for block in examples} >= set(PRINTED)


def wait_until_digested(variables: dict[str, str]) -> None:
    address = f"{variables['PARLEY']}/api/history/exchanges/{variables['EXCHANGE']}"
    command = ["curl", "--fail", "--silent", "--header", f"Authorization: Bearer {variables['KEY']}", address]
    done = '"end_reason":"done"'
    wait_for(lambda: done in subprocess.run(command, capture_output=True, text=True, check=False).stdout)


def test_the_commands_for_production_serve(installation: Installation, tmp_path: Path) -> None:
    [code] = [block.code for block in blocks("docs/setup.md") if "--workers" in block.code]
    *commands, serve = in_this_environment(code.replace("--workers 4", "--workers 2")).splitlines()
    with redis_server(tmp_path) as redis, create_empty_database(tmp_path) as database:
        # Everything is installed already, so that pip asks no index.
        variables = installation.variables | {"DATABASE_URL": database, "REDIS_URL": redis.url, "PIP_NO_INDEX": "1"}
        run(["sh", "-ec", "\n".join(commands)], **variables)
        port = free_port()
        environment = clean_environment(**variables, PORT=str(port))
        with run_process(["sh", "-c", f"exec {serve}"], log=tmp_path / "log", environment=environment) as process:
            wait_for(lambda: is_answering(port, "/readyz"), what=f"serving ({process.log})")
            assert count_workers(process) == 2
            assert "/accounts/link/" in process.output
            assert "/readyz" not in process.output
            assert process.end() == 0


def count_workers(process: Process) -> int:
    children = psutil.Process(process.popen.pid).children()
    return sum("spawn_main" in " ".join(child.cmdline()) for child in children)


def test_the_commands_for_the_first_account_print_a_link(installation: Installation) -> None:
    [code] = [block.code for block in blocks("docs/setup.md") if "createsuperuser" in block.code]
    assert "/accounts/" in run(["sh", "-ec", in_this_environment(code)], **installation.variables)


@pytest.mark.usefixtures("administrator")
def test_the_commands_of_the_page_on_keys_run(installation: Installation) -> None:
    [block] = blocks("docs/keys.md")
    prefix = ""
    for line in block.code.splitlines():
        if line.startswith("$ "):
            command = in_this_environment(line.removeprefix("$ ")).replace("k3v9q0x7ab", prefix)
            printed = run(["sh", "-c", command], **installation.variables)
            prefix = prefix or printed.split("_")[1]
        else:
            assert re.fullmatch(r"parley_\w{10}_…", line)


@pytest.mark.usefixtures("administrator")
def test_the_examples_of_the_page_on_mcp_lead_to_the_server(
    installation: Installation, server: Server, tmp_path: Path
) -> None:
    create, claude, codex, gemini, vs_code = (
        block.code for block in blocks("docs/mcp.md") if "TOOLS" not in block.code
    )
    key = run(["sh", "-ec", in_this_environment(create)], **installation.variables).strip()
    printed = run(["sh", "-ec", claude], PATH=put_on_path(tmp_path, "claude", CLAUDE_MCP)).splitlines()
    codex_server = tomllib.loads(codex)["mcp_servers"]["parley"]
    gemini_server = json.loads(gemini)["mcpServers"]["parley"]
    vs_code_server = json.loads(vs_code)["servers"]["parley"]
    servers = [
        (printed[0], printed[1].removeprefix("Authorization: ")),
        (codex_server["url"], "Bearer parley_…"),
        (gemini_server["httpUrl"], gemini_server["headers"]["Authorization"]),
        (vs_code_server["url"], vs_code_server["headers"]["Authorization"]),
    ]
    assert codex_server["bearer_token_env_var"] == "PARLEY_KEY"
    for url, authorization in servers:
        assert authorization == "Bearer parley_…"
        accept = {"Accept": "application/json, text/event-stream"}
        with post_json(url.replace(":8000", f":{server.port}"), key, INITIALIZE, **accept) as response:
            assert b'"serverInfo"' in response.read()


def test_the_variables_for_claude_code_lead_to_a_model(
    installation: Installation, server: Server, tmp_path: Path
) -> None:
    code = "".join(block.code for block in blocks("docs/clients/claude-code.md") if block.language == "sh")
    code = code.replace(":8000", f":{server.port}").replace("parley_…", installation.ada.key)
    assert '"text":"Hello."' in run(["sh", "-ec", code], PATH=put_on_path(tmp_path, "claude", CLAUDE))


@pytest.mark.usefixtures("administrator")
def test_every_recipe_of_the_cookbook_runs(installation: Installation, server: Server, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{server.port}"
    variables, preamble = installation.variables | silent_curl(tmp_path), ""
    for heading, language, code in blocks("docs/cookbook.md"):
        code = code.replace("local/smollm2-135m-instruct", "played/model").replace(
            "history.jsonl", f"{tmp_path}/h.jsonl"
        )
        if heading == "How to prepare" and language == "sh":
            code = in_this_environment(code).replace("http://127.0.0.1:8000", url)
            printed = run(["sh", "-ec", code + 'echo "$KEY"\n'], **variables)
            variables |= {"PARLEY": url, "KEY": printed.split()[-1]}
            continue
        if heading == "How to prepare":
            preamble = code
            continue
        if "api." in code:
            code = preamble + code
        printed = run_example(language, code, **variables)
        assert PRINTED_BY_RECIPE.get(heading, "") in printed, heading
    assert {block.heading for block in blocks("docs/cookbook.md")} >= set(PRINTED_BY_RECIPE)


@pytest.mark.usefixtures("administrator")
def test_every_command_of_the_page_on_troubleshooting_runs(
    installation: Installation, server: Server, rest_variables: dict[str, str], tmp_path: Path
) -> None:
    # `make run` itself is tested in test_make.py.
    variables = installation.variables | silent_curl(tmp_path)
    variables["PATH"] = put_on_path(tmp_path, "make", '#!/bin/sh\necho "$1 on port $PORT"\n')
    printed: dict[str, str] = {}
    for heading, language, code in blocks("docs/troubleshooting.md"):
        assert language == "sh"
        code = in_this_environment(code).replace(":8000", f":{server.port}").replace("parley_…", installation.ada.key)
        code = code.replace("conversations.zip", rest_variables["FILE"])
        code = code.replace("data/*", f"{variables['PARLEY_DATA_DIR']}/*").replace("signin admin", "signin ada")
        printed[heading] = run(["sh", "-ec", code], **variables)
    assert "All migrations are applied." in printed["Troubleshooting"]
    assert '"ready": true' in printed["Troubleshooting"]
    assert "run on port 8001" in printed["Start"]
    assert "/accounts/link/" in printed["Sign-in"]
    assert printed["Websocket"].startswith("101")
    assert '"scopes"' in printed["Gateway"]
    assert "already there" in printed["Import and upload"]
    assert "secret.key" in printed["Database and disk"]


def test_errors_of_the_page_on_troubleshooting_are_texts_of_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    errors = [error for error in re.findall(r"`([A-Z][^`]+)`", page) if len(error.split()) > 4]
    assert len(errors) > 20
    assert [error for error in errors if not any(words in source_texts() for words in three_words(error))] == []


def three_words(text: str) -> list[str]:
    """Parts of an error that do not include the values in it, which differ."""
    words = text.split()
    return [" ".join(words[place : place + 3]) for place in range(len(words) - 2)]


@cache
def source_texts() -> str:
    """The code and templates, with texts of several lines in one."""
    files = [*(ROOT / "templates").rglob("*.html")]
    for app in ("project", "history", "relay"):
        files += (ROOT / app).rglob("*.py")
    code = " ".join(path.read_text(encoding="utf-8") for path in files)
    return re.sub(r"\s+", " ", re.sub(r'"\s+f?"', "", code))


def test_the_commands_for_an_upgrade_and_back_run(tmp_path: Path, own_database: None) -> None:
    with create_installation(tmp_path) as installation:
        variables = installation.variables | {"PIP_NO_INDEX": "1"}
        printed: dict[str, str] = {}
        for heading, language, code in blocks("docs/upgrading.md"):
            assert language == "sh"
            code = in_this_environment(code).replace("after-upgrade.jsonl", f"{tmp_path}/after-upgrade.jsonl")
            printed[heading] = run(["sh", "-ec", code], **variables)
        assert "backups" in printed["Backup"]
        assert printed["Check of the record"].startswith("Healthy.")
        assert (tmp_path / "after-upgrade.jsonl").read_text(encoding="utf-8").startswith('{"format":"parley"')
        assert "Unapplying relay.0002" in printed["Rollback"]


def silent_curl(folder: Path) -> dict[str, str]:
    """Variables with which curl fails where the server refuses, and shows no progress."""
    (folder / ".curlrc").write_text("fail-with-body\nsilent\nshow-error\n")
    return {"CURL_HOME": str(folder)}


def put_on_path(folder: Path, name: str, script: str) -> str:
    """PATH with a program in front of all others."""
    file = folder / name
    file.write_text(script)
    file.chmod(0o700)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"
