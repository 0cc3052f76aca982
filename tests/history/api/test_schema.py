"""REST: the schema, its reference page and its examples."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode
from urllib.request import Request, urlopen

import pytest
from django.test import Client
from pytest_django.live_server_helper import LiveServer

from history.api import fields
from history.api.schema import operation_name, read_examples, schema
from history.entries import Summary
from history.models import ImportJob, Session
from history.record import exchanges, recorder
from project.accounts.models import User
from tests.clients import ApiClient, create_secret
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results
from tests.servers.processes import ROOT

DOCS = (ROOT / "docs" / "rest.md").read_text(encoding="utf-8")
OPERATIONS = {
    operation["operationId"]: (method.upper(), path, operation)
    for path, methods in schema()["paths"].items()
    for method, operation in methods.items()
}
SETUP, EXAMPLES = read_examples()
CURL = {name: EXAMPLES[operation_name(*operation[:2])][0] for name, operation in OPERATIONS.items()}
PYTHON = {name: EXAMPLES[operation_name(*operation[:2])][1] for name, operation in OPERATIONS.items()}
EVERY_SCOPE = ("read", "write", "delete", "export", "import")


def a_talk(owner: User) -> Session:
    session = recorder.start_session(owner=owner, source="relay")
    outcome = tool_result("c1", "no", status="failed", error="down")
    entries = [
        model_input("punched cards"),
        model_output("I'll look.", tool_request("c1")),
        tool_results(outcome),
        model_output("None."),
    ]
    recorder.append_many(session, entries, after=0)
    return session


# The schema and the page.


def test_the_schema_is_public(client: Client) -> None:
    operation = client.get("/api/schema").json()
    assert operation["openapi"].startswith("3.")
    assert operation["paths"] == schema()["paths"]


def test_the_schema_names_every_address_once(client: Client) -> None:
    assert not [path for path in schema()["paths"] if path.endswith("/") or not path.startswith("/api/history/")]
    assert "/api/history/sessions/{session_id}/messages" in schema()["paths"]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_has_words_errors_and_both_examples(name: str) -> None:
    _, _, operation = OPERATIONS[name]
    assert operation["summary"]
    assert operation["description"]
    assert {"400", "401", "403", "404", "429"} <= set(operation["responses"])
    assert [sample["label"] for sample in operation["x-codeSamples"]] == ["curl", "Python"]
    assert operation["security"] == [{"bearerKey": []}, {"headerKey": []}, {"cookie": []}]


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_operation_is_in_the_docs_with_its_examples(name: str) -> None:
    method, path, operation = OPERATIONS[name]
    assert operation_name(method, path) in DOCS
    curl, python = (sample["source"] for sample in operation["x-codeSamples"])
    assert curl == CURL[name]
    assert curl.startswith("curl ")
    assert python.startswith("import os\n")
    assert PYTHON[name] in DOCS


def test_no_description_names_a_field_class() -> None:
    classes = {name for name in vars(fields) if name.endswith(("Field", "Parameter", "Serializer"))}
    texts = re.findall(r'"description": "([^"]*)"', json.dumps(schema()))
    assert texts
    assert [text for text in texts if classes & set(text.split())] == []


def test_every_code_of_an_error_is_in_the_docs() -> None:
    operation = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "history" / "api").glob("*.py"))
    codes = {*re.findall(r'default_code = "(\w+)"', operation), *re.findall(r'\d{3}: \("(\w+)"', operation)}
    assert codes > {"not_found", "internal"}
    for code in codes | {"reason_needed", "scope_missing", "bad_key", "csrf", "method_not_allowed", "throttled"}:
        assert f"`{code}`" in DOCS


@pytest.mark.django_db
def test_signed_in_users_see_the_navigation_on_the_reference_page(client: Client, ada: User) -> None:
    assert 'href="/charts/"' not in client.get("/api/docs").text
    client.force_login(ada)
    assert 'href="/charts/"' in client.get("/api/docs").text


def test_the_reference_page_has_no_foreign_and_no_inline_code(client: Client, ada: User) -> None:
    for person in (None, ada):
        if person:
            client.force_login(person)
        page = client.get("/api/docs").content.decode()
        assert 'data-schema="/api/schema"' in page
        assert re.search(r'<script src="/static/drf_spectacular_sidecar/[^"]*swagger-ui-bundle[^"]*\.js"', page)
        assert not re.search(r'(src|href)="(http|//)|<style|style="|<script>|onclick', page)


# The examples, as people would run them.


@pytest.fixture
def place(live_server: LiveServer, ada: User, tmp_path: Path) -> dict[str, str]:
    session = a_talk(ada)
    recorder.append(session, Summary(first=1, last=2, summary="cards"), after=4)
    file = tmp_path / "conversations.json"
    file.write_text('{"messages": [{"role": "user", "content": "Hello!"}]}')
    done = ImportJob.objects.create(owner=ada, state=ImportJob.State.DONE)
    exchange = exchanges.open_exchange(session, owner=ada, after=4)
    secret = create_secret(ada, *EVERY_SCOPE, owner_wide=True)
    return {
        "PARLEY": live_server.url,
        "KEY": secret,
        "SESSION": str(session.pk),
        "EXCHANGE": str(exchange.pk),
        "SUMMARY": "5",
        "IMPORT": str(done.pk),
        "FILE": str(file),
    }


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")  # the test's server is no ASGI one
@pytest.mark.django_db(transaction=True)
def test_the_examples_in_python_work(place: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    for name in ("PARLEY", "KEY"):
        monkeypatch.setenv(name, place[name])
    for name in sorted(OPERATIONS, key=lambda name: name == "delete_session"):
        exec(f"{SETUP}\n{PYTHON[name]}", dict(place))
    assert "punched cards" in capsys.readouterr().out
    assert Session.objects.get(pk=place["SESSION"]).hidden_at


@pytest.mark.filterwarnings("ignore:StreamingHttpResponse must consume")  # the test's server is no ASGI one
@pytest.mark.django_db(transaction=True)
def test_the_examples_for_curl_ask_what_the_schema_describes(place: dict[str, str]) -> None:
    for name in sorted(OPERATIONS, key=lambda name: name == "delete_session"):
        method, status = sent(CURL[name], place)
        success = next(int(operation) for operation in OPERATIONS[name][2]["responses"] if operation.startswith("2"))
        assert (method, status) == (OPERATIONS[name][0], success)


def sent(command: str, place: dict[str, str]) -> tuple[str, int]:
    """The method and the status of what curl would send: the machine of a test need not have one."""
    words = shlex.split(re.sub(r"\$([A-Z]+)", lambda match: place[match[1]], command.replace("\\\n", "")))
    assert words.pop(0) == "curl"
    options: dict[str, list[str]] = {}
    address = ""
    while words:
        word = words.pop(0)
        if word == "-G":
            continue
        if word.startswith("-"):
            options.setdefault(word, []).append(words.pop(0))
        else:
            address = word
    query = [one.split("=", 1) for one in options.get("--data-urlencode", [])]
    request = Request(
        f"{address}?{urlencode([(name, value) for name, value in query])}" if query else address,
        method=options.get("-X", ["GET"])[0],
        headers=dict(one.split(": ", 1) for one in options["-H"]),
        data=b"".join(Path(one[1:]).read_bytes() for one in options.get("--data-binary", []))
        or "".join(options.get("-d", [])).encode()
        or None,
    )
    with urlopen(request, timeout=10) as response:
        return request.get_method(), response.status


def test_what_the_schema_says_of_reasons_and_cursors_is_what_is_refused(ada: Any) -> None:
    """Texts that are refused for their form do not fit the pattern, and others do."""
    api, session = ApiClient(ada), create_chat(ada, "hello")
    paths = schema()["paths"]
    reason, since = (
        next(one["schema"]["pattern"] for one in paths[path]["get"]["parameters"] if one["name"] == name)
        for path, name in [("/api/history/sessions/{session_id}/messages", "reason"), ("/api/history/export", "since")]
    )
    cases = [(f"/sessions/{session.pk}/messages?reason=", reason, text) for text in (" ", "\t\n", "\0", "a", " b ")]
    cases += [
        ("/export?report=true&since=", since, text)
        for text in ("start", "0~1", "2026-02-30T00:00:00Z~1", "2026-13-01T00:00:00Z~1", "2026-11-30T23:59:59.5Z~7")
    ]
    for path, pattern, text in cases:
        status = api.call("GET", path + quote(text)).status_code
        assert (status == 400) == (re.search(pattern, text) is None), (path, text, status)
