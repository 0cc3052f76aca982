"""REST: what lists serve, and requests that the schema allows and the server takes."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission

from history import exporting
from history.access import permissions
from history.access.permissions import Purpose
from history.api.schema import schema
from history.api.serializers import SessionSerializer
from history.exporting import Selection
from history.record import recorder
from tests.clients import ApiClient
from tests.factories import create_chat, model_input, model_output

pytestmark = pytest.mark.django_db


def test_lists_serve_metadata_of_sessions_and_request_ids_of_messages(ada: Any) -> None:
    session = recorder.start_session(owner=ada, metadata={"client_id": "laptop"})
    recorder.append_many(session, [model_input("hello"), model_output("hi", request_id="req_1")], after=0)
    api = ApiClient(ada)
    assert api.get("/sessions")["results"][0]["metadata"] == {"client_id": "laptop"}
    assert api.get(f"/sessions/{session.pk}")["metadata"] == {"client_id": "laptop"}
    messages = api.get(f"/sessions/{session.pk}/messages")["results"]
    assert [message["request_id"] for message in messages] == ["", "req_1"]


def test_metadata_of_others_is_hidden_with_the_title(ada: Any, staff: Any) -> None:
    recorder.start_session(owner=ada, metadata={"note": "private"})
    staff.user_permissions.set(Permission.objects.filter(codename="view_session"))
    [listed] = permissions.sessions_for(type(staff).objects.get(pk=staff.pk), Purpose.LIST).select_related("owner")
    assert SessionSerializer(listed).data["metadata"] == {}


def test_before_and_after_together_are_what_lies_between(ada: Any) -> None:
    session = create_chat(ada, *"abcdefgh")

    def read(address: str) -> tuple[list[int], Any]:
        page = ApiClient(ada).get(address if "://" in address else f"/sessions/{session.pk}/messages?{address}")
        return [message["seq"] for message in page["results"]], page["next"]

    assert read("after=2&before=6") == ([3, 4, 5], None)
    first, next_page = read("after=2&before=6&limit=2")
    assert first == [3, 4]
    assert read(next_page) == ([5], None)
    assert read("after=1&before=1") == ([], None)


def test_any_format_takes_a_cursor_of_what_has_changed(ada: Any) -> None:
    session = create_chat(ada, "hello", "hi")
    export = exporting.begin(ada, Selection(mine=True), "csv", since="start")
    assert b"hello" in b"".join(export.pieces())
    recorder.rename(session, title="later")
    assert ApiClient(ada).call("GET", "/export?since=start&format=csv").status_code == 200


def test_the_schema_allows_no_nul_and_no_empty_import() -> None:
    paths = schema()["paths"]
    parameters = {parameter["name"]: parameter for parameter in paths["/api/history/tool-calls"]["get"]["parameters"]}
    assert parameters["tool"]["schema"]["pattern"] == r"^[^\u0000]*$"
    assert paths["/api/history/import"]["post"]["requestBody"]["required"] is True
