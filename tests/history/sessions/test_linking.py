"""Sessions that staff have linked: read as one transcript by whoever may read each of them, and no row moves."""

from __future__ import annotations

import json
import re
from html import unescape
from typing import Any

import pytest
from django.test import Client

from history import retention
from history.errors import CannotLink
from history.models import AuditEvent, Message, Session
from history.record import recorder
from history.record.selectors import PAGE, chain_to
from history.verification import verify
from tests.factories import answered, chat_of, said
from tests.history.access.test_permissions import with_right

pytestmark = pytest.mark.django_db


def talk(owner: Any, title: str, *words: str) -> Session:
    session = chat_of(owner, title=title)
    entries = [entry for word in words for entry in (said(word), answered(f"{word}, indeed."))]
    recorder.append_many(session, entries, after=0)
    return session


@pytest.fixture
def first(ada: Any) -> Session:
    return talk(ada, "The loom", "Threads", "Cards")


@pytest.fixture
def second(ada: Any) -> Session:
    return talk(ada, "The engine", "Wheels")


def read(client: Client, address: str, **headers: str) -> str:
    response = client.get(address, headers=headers)
    assert response.status_code == 200
    return unescape(response.content.decode())


def test_linked_sessions_are_read_as_one_and_no_row_moves(
    client: Client, ada: Any, first: Session, second: Session
) -> None:
    before = list(Message.objects.order_by("pk").values_list("pk", "session", "seq", "parent_seq", "seal"))
    recorder.link(second, to=first)
    client.force_login(ada)
    html = read(client, f"/s/{second.pk}/whole/")
    places = [html.index(word) for word in ("The loom", "Threads, indeed.", "Cards, indeed.", "Wheels, indeed.")]
    assert places == sorted(places)
    assert html.count(f'href="/s/{first.pk}/?at=1#m1"') == 1, "a link to an entry leads to its own session"
    ids = re.findall(r' id="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert list(Message.objects.order_by("pk").values_list("pk", "session", "seq", "parent_seq", "seal")) == before
    assert list(verify(sessions=[first, second])) == []


def test_a_long_one_comes_in_parts_without_a_gap(client: Client, ada: Any, second: Session) -> None:
    first = talk(ada, "Long", *(f"Word{number}" for number in range(PAGE)))
    recorder.link(second, to=first)
    client.force_login(ada)
    seen, address = "", f"/s/{second.pk}/whole/"
    for _ in range(5):
        seen += read(client, address, hx_request="true", hx_target="more")
        found = re.search(r'rel="next" href="([^"]+)"', seen.rpartition('id="more"')[2])
        if found is None:
            break
        address = f"/s/{second.pk}/whole/{found[1]}"
    assert [int(number) for number in re.findall(r"Word(\d+), indeed", seen)] == list(range(PAGE))
    assert "Wheels, indeed." in seen


def test_the_session_says_what_it_continues_and_what_continues_it(
    client: Client, ada: Any, first: Session, second: Session
) -> None:
    recorder.link(second, to=first)
    client.force_login(ada)
    html = read(client, f"/s/{second.pk}/")
    assert f'Continues <a href="/s/{first.pk}/">The loom</a>' in html
    assert f"/s/{second.pk}/whole/" in html
    later = f'continued in</dt><dd><a id="panel-later-{second.pk}" href="/s/{second.pk}/">'
    assert later in read(client, f"/s/{first.pk}/")
    told = client.get(f"/api/history/sessions/{second.pk}").json()
    assert told["continues"] == str(first.pk)
    retention.hide(first, actor=ada)
    assert "Continues <a" not in read(client, f"/s/{second.pk}/")
    assert "Threads" not in read(client, f"/s/{second.pk}/whole/")


def test_the_page_says_how_the_relay_knew_the_session(client: Client, ada: Any, first: Session) -> None:
    Session.objects.filter(pk=first.pk).update(recognised_by="fingerprint")
    client.force_login(ada)
    assert "recognised by</dt><dd>what had been said before" in read(client, f"/s/{first.pk}/")


def test_only_sessions_of_one_person_are_linked_and_never_in_a_circle(
    ada: Any, bob: Any, first: Session, second: Session
) -> None:
    recorder.link(second, to=first)
    with pytest.raises(CannotLink):
        recorder.link(first, to=second)
    with pytest.raises(CannotLink):
        recorder.link(first, to=first)
    with pytest.raises(CannotLink):
        recorder.link(talk(bob, "Bob's"), to=first)
    assert chain_to(second) == [first, second]
    retention.erase(first, actor=ada, reason="a test")
    second.refresh_from_db()
    assert second.continues_id is None


# Staff.


def post(client: Client, session: Session, verb: str, **fields: Any) -> Any:
    return client.post(f"/admin/history/session/{session.pk}/{verb}/", {"reason": "one talk in two", **fields})


def test_staff_link_sessions_for_a_reason_and_take_it_back(
    client: Client, staff: Any, first: Session, second: Session
) -> None:
    client.force_login(with_right(staff, "view_session", "change_session"))
    assert "Link" in read(client, f"/admin/history/session/{second.pk}/change/")
    assert post(client, second, "link", continues=str(first.pk), reason="").status_code == 422
    assert post(client, second, "link", continues="nonsense").status_code == 422
    assert post(client, second, "link", continues=f"https://parley.test/s/{first.pk}/").status_code == 302
    second.refresh_from_db()
    assert second.continues == first
    event = AuditEvent.objects.get(action="link")
    assert (event.session, event.reason, json.loads(event.details)["continues"]) == (
        second.pk,
        "one talk in two",
        str(first.pk),
    )
    assert post(client, first, "link", continues=str(second.pk)).status_code == 422
    assert post(client, second, "link", continues="").status_code == 302
    second.refresh_from_db()
    assert second.continues is None


def test_staff_fork_a_session_for_its_owner(client: Client, staff: Any, ada: Any, first: Session) -> None:
    client.force_login(with_right(staff, "view_session", "change_session"))
    assert post(client, first, "fork", at=99).status_code == 422
    assert post(client, first, "fork", at=2).status_code == 302
    copy = Session.objects.get(forked_from=first)
    assert (copy.owner, copy.forked_at, copy.message_count) == (ada, 2, 2)
    assert AuditEvent.objects.get(action="fork").session == first.pk


@pytest.mark.parametrize("rights", [(), ("view_session",), ("change_session",)], ids=str)
def test_whoever_may_not_change_sessions_links_none(
    client: Client, staff: Any, first: Session, second: Session, rights: tuple[str, ...]
) -> None:
    client.force_login(with_right(staff, *rights))
    assert post(client, second, "link", continues=str(first.pk)).status_code == 404
    assert post(client, second, "fork").status_code == 404


def test_staff_who_read_as_one_say_why_for_each(client: Client, staff: Any, first: Session, second: Session) -> None:
    recorder.link(second, to=first)
    client.force_login(with_right(staff, "view_session", "read_session"))
    address = f"/s/{second.pk}/whole/"
    for session in (second, first):
        assert client.get(address).status_code == 403
        client.post(f"/s/{session.pk}/open/", {"reason": "a dispute about looms"})
    assert "Threads" in read(client, address)


def test_a_stranger_finds_nothing(client: Client, bob: Any, first: Session, second: Session) -> None:
    recorder.link(second, to=first)
    client.force_login(bob)
    assert client.get(f"/s/{second.pk}/whole/").status_code == 404
