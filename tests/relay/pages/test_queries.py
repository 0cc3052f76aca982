"""The database reads as much for a page among thousands of sessions, also with statistics of its tables."""

from __future__ import annotations

from typing import Any

import pytest
from django.test import Client

from history.models import Session
from history.record import recorder
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results
from tests.servers.databases import analyze_tables, measure_db_work

pytestmark = pytest.mark.django_db

OTHERS = 3_000


def create_session_with_subagent(owner: Any) -> tuple[Session, Session]:
    session = create_chat(owner, "Look it up.")
    call = recorder.append(session, model_output("", tool_request("call-1", name="agent")), after=1)
    recorder.append(session, tool_results(tool_result("call-1", name="agent")), after=call.seq)
    child = create_chat(owner, "a", parent=session, parent_call="call-1")
    create_chat(owner, "b", forked_from=session)
    return session, child


def test_a_session_page_reads_as_much_among_thousands_of_sessions(ada: Any) -> None:
    def read() -> None:
        response = client.get(f"/s/{session.pk}/")
        panel = client.get(f"/s/{session.pk}/panel/", headers={"hx-request": "true"})
        assert str(child.pk) in response.content.decode() + panel.content.decode()

    client = Client()
    client.force_login(ada)
    session, child = create_session_with_subagent(ada)
    read()
    analyze_tables()
    among_few = measure_db_work(read)
    Session.objects.bulk_create(Session(owner=ada) for _ in range(OTHERS))
    analyze_tables()
    assert measure_db_work(read) < among_few + OTHERS
