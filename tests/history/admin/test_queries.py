"""Lists of the admin cost what they show, however many rows there are."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from history.access.reasons import open_for_reading
from history.admin import base
from history.models import AuditEvent, Exchange, Session
from history.record import recorder
from tests.factories import create_chat, model_output, tool_request, tool_result, tool_results
from tests.servers.databases import analyze_tables, measure_db_work

pytestmark = pytest.mark.django_db

FEW, MANY = 200, 1_000


def fill_sessions(ada: Any, count: int) -> None:
    now = timezone.now()
    Session.objects.bulk_create(
        Session(owner=ada, title="x", source="relay", last_activity_at=now - timedelta(minutes=number))
        for number in range(count)
    )


def fill_exchanges(ada: Any, count: int) -> None:
    now = timezone.now()
    Exchange.objects.bulk_create(
        Exchange(owner=ada, model="m", started_at=now - timedelta(minutes=number)) for number in range(count)
    )


def fill_messages(ada: Any, count: int) -> None:
    session = recorder.start_session(owner=ada)
    turn = [model_output("said", tool_request("c1")), tool_results(tool_result("c1"))]
    for _ in range(count // 200):
        recorder.append_many(session, turn * 100, after=Session.objects.get(pk=session.pk).head)


def fill_events(ada: Any, count: int) -> None:
    last = AuditEvent.objects.count()
    AuditEvent.objects.bulk_create(
        AuditEvent(seq=last + number, at=timezone.now(), action="session.read", seal=b"x")
        for number in range(1, count + 1)
    )


LISTS: list[tuple[Callable[[Any, int], None], tuple[str, ...]]] = [
    (fill_sessions, ("session/", "session/?last_activity_at__year=2020", "session/?state=held")),
    (fill_messages, ("message/", "toolcall/")),
    (fill_exchanges, ("exchange/",)),
    (fill_events, ("auditevent/",)),
]


@pytest.mark.parametrize(("fill", "addresses"), LISTS)
def test_a_list_costs_the_same_among_thousands(
    client: Client,
    ada: Any,
    admin_user: Any,
    monkeypatch: pytest.MonkeyPatch,
    fill: Callable[[Any, int], None],
    addresses: tuple[str, ...],
) -> None:
    for module, name in ((base, "MOST_COUNTED"), (base, "LOOKED_AT")):
        monkeypatch.setattr(module, name, 60)
    client.force_login(admin_user)

    def effort(address: str) -> int:
        return measure_db_work(lambda: client.get(f"/admin/history/{address}"))

    fill(ada, FEW)
    analyze_tables()
    effort(addresses[0])  # queries made once per process
    among_few = [effort(address) for address in addresses]
    fill(ada, MANY)
    analyze_tables()
    among_many = [effort(address) for address in addresses]
    assert [few and many / few < 1.5 for few, many in zip(among_few, among_many, strict=True)] == [True] * len(
        addresses
    )


def test_the_transcript_of_a_long_session_costs_that_of_a_short_one(client: Client, ada: Any, admin_user: Any) -> None:
    short, long = create_chat(ada, *["word"] * 30), create_chat(ada, *["word"] * 300)
    client.force_login(admin_user)
    efforts = []
    for session in (short, long):
        open_for_reading(admin_user, session, reason="ticket 7")
        analyze_tables()
        address = f"/admin/history/session/{session.pk}/transcript/"
        efforts.append(measure_db_work(lambda address=address: client.get(address)))  # type: ignore[misc]
    assert efforts[1] < 1.5 * efforts[0]
