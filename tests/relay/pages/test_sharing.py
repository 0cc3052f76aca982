"""Share links: what a visitor sees, what stays hidden, and when a link ends."""

from __future__ import annotations

import re
from datetime import timedelta
from hashlib import sha256
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.test import Client
from django.utils import timezone
from pytest_django.fixtures import Settings

from history import retention
from history.access import audit
from history.entries import (
    DebugLog,
    Media,
    ModelInput,
    NotebookSet,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolsOffered,
)
from history.models import AuditEvent, Session, ShareLink
from history.record import recorder
from history.transcripts import share_links
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.django_db

HTMX = {"HX-Request": "true"}


@pytest.fixture
def owner(client: Client, ada: Any) -> Client:
    client.force_login(ada)
    return client


@pytest.fixture
def outsider() -> Client:
    return Client()


def link_to(session: Session, **wishes: Any) -> str:
    token = share_links.token_of(share_links.share(session, by=session.owner, **wishes))
    return f"/shared/{token}/"


def read(outsider: Client, link: str) -> str:
    response = outsider.get(link)
    assert response.status_code == 200
    return response.content.decode()


def is_shut(outsider: Client, link: str) -> bool:
    response = outsider.get(link)
    return response.status_code == 404 and "This link is invalid or expired" in response.content.decode()


def addresses(html: str) -> list[str]:
    return re.findall(r'readonly value="http://[^"/]*(/shared/[\w-]+/)"', html)


# What it shows.


def test_a_visitor_with_the_link_reads_the_conversation(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "Is it *slow*?", title="The build server")
    entries = [
        model_output("Looking.", tool_request("a")),
        tool_results(tool_result("a", "CPU 3 %")),
        model_output("It waits for the disk."),
    ]
    recorder.append_many(session, entries, after=1)
    html = read(outsider, link_to(session))
    for text in ("The build server", "Is it <em>slow</em>?", "sys_monitor", "CPU 3 %", "It waits for the disk."):
        assert text in html
    assert "composer" not in html
    assert "ada" not in re.sub(r"<[^>]*>", "", html)


def test_it_shows_the_conversation_as_it_was_and_one_that_follows_goes_on(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "one", "two")
    fixed, following = link_to(session), link_to(session, follows=True)
    recorder.append(session, model_input("said later"), after=2)
    assert "said later" not in read(outsider, fixed)
    assert "said later" in read(outsider, following)


def test_it_keeps_to_its_branch_wherever_the_conversation_goes(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "one", "two", "the third", "the fourth")
    fixed, following = link_to(session), link_to(session, follows=True)
    recorder.edit(session, seq=3, entry=model_input("another third"))
    html = read(outsider, fixed)
    assert "the fourth" in html
    assert "another third" not in html
    assert "another third" not in read(outsider, f"{fixed}?at=6")
    assert "another third" not in read(outsider, f"{fixed}?leaf=6")
    html = read(outsider, following)
    assert "another third" in html
    assert "the third" not in html.replace("another third", "")
    assert "version" not in html


def test_what_is_not_part_of_the_conversation_is_never_shown(outsider: Client, ada: Any) -> None:
    session = recorder.start_session(owner=ada)
    entries = [
        SystemInstructionSet(instruction="secret instruction"),
        ToolsOffered(tools=(ToolDefinition(name="secret_tool"),)),
        NotebookSet(content="secret notebook"),
        model_input("hello"),
        model_input("secret aside", is_internal=True),
        model_output("secret thought", is_internal=True),
        model_output("hello yourself"),
        Summary(first=1, last=2, summary="secret summary"),
    ]
    recorder.append_many(session, entries, after=0)
    recorder.append(session, DebugLog(message="secret log"), after=4)
    for wishes in ({}, {"follows": True}):
        link = link_to(session, **wishes)
        for query in ("", "?internal=1", "?at=1", "?at=9&internal=1", "?after=0"):
            html = read(outsider, link + query)
            assert "hello yourself" in html
            assert "secret" not in html
            assert "internal" not in html


def test_a_long_conversation_is_read_page_by_page_and_ends_where_it_was_shared(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, *[f"text {number}" for number in range(1, 61)])
    link = link_to(session)
    recorder.append(session, model_input("said later"), after=60)
    seen: list[int] = []
    query: str | None = ""
    while query is not None:
        html = read(outsider, link + query)
        seen = [*map(int, re.findall(r'id="m(\d+)"', html)), *seen]
        found = re.search(r'rel="prev" href="([^"]*)"', html)
        query = found[1] if found else None
    assert seen == list(range(1, 61))
    assert "said later" not in read(outsider, f"{link}?after=55")


def test_an_empty_session_can_be_shared_and_says_nothing(outsider: Client, ada: Any) -> None:
    assert "nothing left to read" in read(outsider, link_to(recorder.start_session(owner=ada)))


def test_no_link_leads_to_a_page_that_wants_an_account(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "x " * 30_000, "y")
    recorder.append_many(
        session, [model_output("", tool_request("a")), tool_results(tool_result("a", "z" * 9_000))], after=2
    )
    html = read(outsider, link_to(session))
    assert "The first" in html
    assert "/s/" not in html


# Attachments.


def with_picture(owner: Any, **fields: Any) -> tuple[Session, str]:
    content = b"\x89PNG\r\n\x1a\n and so on"
    stored = recorder.store_blob(content, media_type="image/png")
    session = recorder.start_session(owner=owner)
    picture = Media(media_type="image/png", sha256=stored, name="cat.png", size=len(content))
    recorder.append(session, ModelInput(parts=(Text(text="Look"), picture), **fields), after=0)
    return session, sha256(content).hexdigest()


def test_a_picture_of_a_shared_conversation_is_seen_through_the_link_alone(outsider: Client, ada: Any) -> None:
    session, name = with_picture(ada)
    link = link_to(session)
    address = f"{link}attachments/{name}"
    assert f'<img src="{address}"' in read(outsider, link)
    response = outsider.get(address)
    assert response["Content-Type"] == "image/png"
    assert response["Cache-Control"] == "private, no-store"
    assert response["Referrer-Policy"] == "no-referrer"
    assert response["X-Content-Type-Options"] == "nosniff"
    assert outsider.get(f"/attachments/{session.pk}/{name}").status_code == 302


def test_a_file_that_the_link_does_not_show_is_not_there(outsider: Client, ada: Any) -> None:
    session, name = with_picture(ada, is_internal=True)
    assert outsider.get(f"{link_to(session)}attachments/{name}").status_code == 404
    recorder.append(session, model_input("hello"), after=1)
    before = link_to(session)
    entry = recorder.append(session, with_picture_entry(name), after=2)
    assert outsider.get(f"{before}attachments/{name}").status_code == 404
    assert outsider.get(f"{link_to(session)}attachments/{name}").status_code == 200
    beside = link_to(session)
    following = link_to(session, follows=True)
    recorder.edit(session, seq=entry.seq, entry=model_input("without it"))
    assert outsider.get(f"{beside}attachments/{name}").status_code == 200
    assert outsider.get(f"{following}attachments/{name}").status_code == 404


def with_picture_entry(name: str) -> ModelInput:
    return ModelInput(parts=(Media(media_type="image/png", sha256=name, name="cat.png", size=1),))


def test_a_long_instruction_that_is_kept_like_a_file_is_not_there(outsider: Client, ada: Any) -> None:
    instruction = "secret instruction " * 200
    session = recorder.start_session(owner=ada)
    recorder.append_many(session, [SystemInstructionSet(instruction=instruction), model_input("hello")], after=0)
    name = sha256(instruction.encode()).hexdigest()
    assert outsider.get(f"{link_to(session)}attachments/{name}").status_code == 404


# When it is over.


def test_a_revoked_link_opens_nothing(owner: Client, outsider: Client, ada: Any) -> None:
    session, name = with_picture(ada)
    link, other = link_to(session), link_to(session)
    row = ShareLink.objects.first()
    assert row is not None
    html = owner.post(f"/s/{session.pk}/share/{row.pk}/revoke/", headers=HTMX).content.decode()
    assert addresses(html) == [other]
    assert is_shut(outsider, link)
    assert outsider.get(f"{link}attachments/{name}").status_code == 404
    assert "Look" in read(outsider, other)
    assert share_links.revoke(row, by=ada) is False


def test_a_link_expires(outsider: Client, ada: Any) -> None:
    link = link_to(create_chat(ada, "one"), expires_at=timezone.now() + timedelta(days=1))
    read(outsider, link)
    ShareLink.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert is_shut(outsider, link)


def test_it_is_shut_while_its_session_is_deleted_and_undo_opens_it_again(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    link = link_to(session)
    retention.hide(session, actor=ada)
    assert is_shut(outsider, link)
    retention.unhide(session, actor=ada)
    read(outsider, link)


def test_a_hold_keeps_a_deleted_session_for_staff_and_not_for_outsiders(outsider: Client, ada: Any, staff: Any) -> None:
    session = create_chat(ada, "one")
    link = link_to(session)
    retention.hold(session, actor=staff, reason="a dispute")
    read(outsider, link)
    retention.hide(session, actor=ada)
    assert is_shut(outsider, link)


def test_an_expired_session_is_shut_before_the_purge_comes(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    link = link_to(session)
    Session.objects.filter(pk=session.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert is_shut(outsider, link)


def test_it_is_shut_when_its_owner_may_not_sign_in_any_more(outsider: Client, ada: Any) -> None:
    link = link_to(create_chat(ada, "one"))
    ada.is_active = False
    ada.save()
    assert is_shut(outsider, link)


def test_a_session_that_is_removed_takes_its_links_with_it(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    link = link_to(session)
    retention.erase(session, actor=ada, reason="asked to")
    assert is_shut(outsider, link)
    assert not ShareLink.objects.exists()


def test_the_operator_can_switch_it_off(owner: Client, outsider: Client, ada: Any, settings: Settings) -> None:
    session = create_chat(ada, "one")
    link = link_to(session)
    settings.PARLEY_SHARING = False
    assert is_shut(outsider, link)
    assert owner.post(f"/s/{session.pk}/share/", {}).status_code == 409
    assert ShareLink.objects.count() == 1
    settings.PARLEY_SHARING = True
    read(outsider, link)


@pytest.mark.parametrize("token", ["nonsense", "x" * 43, "x" * 4000, "%00", "%ff"])
def test_links_cannot_be_guessed(outsider: Client, ada: Any, token: str) -> None:
    link_to(create_chat(ada, "one"))
    assert is_shut(outsider, f"/shared/{token}/")


# The link itself.


def test_the_database_alone_opens_nothing(ada: Any) -> None:
    session = create_chat(ada, "one")
    link = share_links.share(session, by=ada)
    token = share_links.token_of(link)
    assert token
    assert len(token) >= 43
    stored = str(ShareLink.objects.values().get())
    assert token not in stored
    assert token not in "".join(AuditEvent.objects.values_list("details", flat=True))


def test_after_the_secret_has_changed_a_link_works_but_cannot_be_shown(
    owner: Client, outsider: Client, ada: Any, settings: Settings
) -> None:
    session = create_chat(ada, "one")
    link = link_to(session)
    settings.SECRET_KEY = "another secret of at least thirty-two characters"
    read(outsider, link)
    owner.force_login(ada)
    html = owner.get(f"/s/{session.pk}/share/").content.decode()
    assert addresses(html) == []
    assert "cannot be shown again" in html
    assert "Revoke" in html


def test_neither_caches_nor_search_engines_nor_other_sites_learn_of_it(outsider: Client, ada: Any) -> None:
    for link in (link_to(create_chat(ada, "one")), "/shared/nonsense/"):
        response = outsider.get(link)
        assert response["Cache-Control"] == "private, no-store"
        assert response["Referrer-Policy"] == "no-referrer"
        assert "noindex" in response["X-Robots-Tag"]
        assert not response.cookies
        assert "<script" not in response.content.decode()


# Making one.


def test_the_owner_makes_a_link_copies_it_again_and_sees_how_often_it_was_opened(
    owner: Client, outsider: Client, ada: Any
) -> None:
    session = create_chat(ada, "hello there")
    made = owner.post(f"/s/{session.pk}/share/", {"follows": "0", "days": "7"}, headers=HTMX).content.decode()
    (link,) = addresses(made)
    for _ in range(3):
        assert "hello there" in read(outsider, link)
    again = owner.get(f"/s/{session.pk}/share/", headers=HTMX).content.decode()
    assert addresses(again) == [link]
    assert "opened 3 times" in again
    row = ShareLink.objects.get()
    assert row.expires_at is not None
    assert timedelta(days=6) < row.expires_at - timezone.now() <= timedelta(days=7)


def test_without_a_script_it_is_a_page(owner: Client, ada: Any) -> None:
    session = create_chat(ada, "hello")
    html = owner.post(f"/s/{session.pk}/share/", {"follows": "1"}).content.decode()
    assert "<html" in html
    assert len(addresses(html)) == 1
    row = ShareLink.objects.get()
    assert row.follows
    response = owner.post(f"/s/{session.pk}/share/{row.pk}/revoke/")
    assert response["Location"] == f"/s/{session.pk}/share/"


@pytest.mark.parametrize("days", ["0", "-1", "9999999999", "x", ""])
def test_nonsense_for_an_end_is_no_end(owner: Client, ada: Any, days: str) -> None:
    owner.post(f"/s/{create_chat(ada, 'one').pk}/share/", {"days": days})
    assert ShareLink.objects.get().expires_at is None


def test_there_is_an_end_to_the_number_of_links(owner: Client, ada: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_links, "MOST", 2)
    session = create_chat(ada, "one")
    for _ in range(3):
        html = owner.post(f"/s/{session.pk}/share/", headers=HTMX).content.decode()
    assert '<p class="note error small" role="alert">' in html
    assert ShareLink.objects.count() == 2


def test_only_the_owner_shares_sees_and_revokes(client: Client, ada: Any, bob: Any, staff: Any) -> None:
    session = create_chat(ada, "one")
    link = share_links.share(session, by=ada)
    staff.user_permissions.set(Permission.objects.filter(content_type__app_label="history"))
    for other in (bob, staff):
        client.force_login(other)
        assert client.get(f"/s/{session.pk}/share/").status_code == 404
        assert client.post(f"/s/{session.pk}/share/").status_code == 404
        assert client.post(f"/s/{session.pk}/share/{link.pk}/revoke/").status_code == 404
    client.logout()
    assert client.get(f"/s/{session.pk}/share/").status_code == 302
    assert client.post(f"/s/{session.pk}/share/").status_code == 302
    assert list(ShareLink.objects.values_list("revoked_at", flat=True)) == [None]


def test_a_link_is_not_revoked_through_another_session(owner: Client, ada: Any, bob: Any) -> None:
    theirs = share_links.share(create_chat(bob, "one"), by=bob)
    assert owner.post(f"/s/{create_chat(ada, 'mine').pk}/share/{theirs.pk}/revoke/").status_code == 404


def test_nothing_is_shared_without_the_token(ada: Any) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(ada)
    session = create_chat(ada, "one")
    link = share_links.share(session, by=ada)
    assert client.post(f"/s/{session.pk}/share/").status_code == 403
    assert client.post(f"/s/{session.pk}/share/{link.pk}/revoke/").status_code == 403


# Who knows.


def test_sharing_reading_and_revoking_are_told_to_the_audit_chain(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "one")
    link = share_links.share(session, by=ada)
    address = f"/shared/{share_links.token_of(link)}/"
    for _ in range(5):
        read(outsider, address)
    outsider.head(address)
    ShareLink.objects.update(noted_at=timezone.now() - timedelta(hours=2))
    read(outsider, address)
    share_links.revoke(link, by=ada)
    told = list(AuditEvent.objects.order_by("seq").values_list("action", "actor", "session"))
    views = [("view_shared", None, session.pk)] * 2  # one an hour
    assert told == [("share", ada.pk, session.pk), *views, ("unshare", ada.pk, session.pk)]
    assert ShareLink.objects.get().views == 6
    assert list(audit.flaws()) == []


def test_a_snapshot_keeps_the_title_of_its_time_and_a_following_link_does_not(outsider: Client, ada: Any) -> None:
    session = create_chat(ada, "Is it slow?", title="The build server")
    snapshot, following = share_links.share(session, by=ada), share_links.share(session, by=ada, follows=True)
    recorder.rename(session, title="Why we fired Bob")
    shown = [outsider.get(f"/shared/{share_links.token_of(link)}/").content.decode() for link in (snapshot, following)]
    assert ["Why we fired Bob" in html for html in shown] == [False, True]
    assert "The build server" in shown[0]
