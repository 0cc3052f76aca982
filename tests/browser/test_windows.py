"""Every window on a conversation, opened in a browser by four people: its owner, staff who may read, staff who may only
list, and a stranger. Who may not read meets no word of it anywhere. How the pages look, their own tests see; here only
those that staff who may list are shown instead.
"""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import Permission
from playwright.sync_api import Page, expect

from history.models import Session
from tests.browser.conftest import enter, judge
from tests.factories import create_chat

pytestmark = pytest.mark.browser

TITLE, SECRET = "The lighthouse", "sealskin"
# What is opened, and what the owner, a reader, a lister and a stranger are told. REST is asked with the same cookie.
WINDOWS = {
    "/s/{id}/": (200, 200, 403, 404),
    "/s/{id}/2/": (200, 200, 403, 404),
    "/s/{id}/?at=1": (200, 200, 403, 404),
    "/s/{id}/timeline/": (200, 200, 200, 404),
    "/history/": (200, 200, 200, 200),
    "/history/?q=keeper": (200, 200, 200, 200),
    "/charts/": (200, 200, 200, 200),
    "/import/": (200, 200, 200, 200),
    "/lint/?session={id}": (200, 200, 403, 404),
    "/api/docs": (200, 200, 200, 200),
    "/api/history/sessions/{id}": (200, 200, 200, 404),
    "/api/history/sessions/{id}/messages": (200, 200, 403, 404),
    "/api/history/search?q=keeper": (200, 200, 200, 200),
    "/api/history/export?session={id}&format=markdown&report=true": (200, 403, 403, 404),
    "/admin/history/session/{id}/change/": (404, 200, 200, 404),
}
SHOWS_WORDS = ("/s/{id}/", "/s/{id}/2/", "/s/{id}/?at=1", "/history/?q=keeper", "/api/history/sessions/{id}/messages")


@pytest.fixture
def conversation(ada: Any) -> Session:
    return create_chat(ada, "What burns in it?", f"Oil, and {SECRET} keeps the keeper warm.", title=TITLE)


def look_through(page: Page, session: Session, *, place: int, reads: bool) -> None:
    for address, statuses in WINDOWS.items():
        is_page = not address.startswith("/api/history/")
        response = (page.goto if is_page else page.request.get)(address.format(id=session.pk))
        assert response is not None
        told = response.text()
        assert response.status == statuses[place], address
        assert reads or SECRET not in told, f"{address} shows what they may not read"
        if reads and address in SHOWS_WORDS:
            assert SECRET in told, f"{address} does not show it"


def staff_with(person: Any, *rights: str) -> Any:
    person.user_permissions.set(Permission.objects.filter(codename__in=rights, content_type__app_label="history"))
    return person


def test_the_owner_opens_every_window(page: Page, site: str, ada: Any, conversation: Session) -> None:
    enter(page, site, ada)
    look_through(page, conversation, place=0, reads=True)


def test_staff_who_may_read_say_why_and_open_them_and_the_owner_sees_it(
    page: Page, site: str, ada: Any, staff: Any, conversation: Session
) -> None:
    enter(page, site, staff_with(staff, "view_session", "read_session"))
    page.goto(f"/s/{conversation.pk}/")
    expect(page.get_by_text(SECRET)).to_have_count(0)
    page.get_by_role("textbox").fill("A complaint about an answer")
    page.get_by_role("button", name="Read session").click()
    expect(page.get_by_text(SECRET)).to_be_visible()
    look_through(page, conversation, place=1, reads=True)
    page.context.clear_cookies()
    enter(page, site, ada)
    page.goto(f"/s/{conversation.pk}/")
    expect(page.get_by_text("A complaint about an answer")).to_be_visible()


def test_staff_who_may_only_list_find_a_neutral_name_and_no_word(
    page: Page, site: str, staff: Any, conversation: Session
) -> None:
    enter(page, site, staff_with(staff, "view_session"))
    look_through(page, conversation, place=2, reads=False)
    for address in (f"/s/{conversation.pk}/", f"/s/{conversation.pk}/timeline/", "/history/?q=keeper"):
        page.goto(address)
        judge(page, address)
    page.goto("/history/")
    expect(page.get_by_role("link", name="Session of ")).to_be_visible()
    expect(page.get_by_text(TITLE)).to_have_count(0)


def test_for_a_stranger_it_is_not_there(page: Page, site: str, bob: Any, conversation: Session) -> None:
    enter(page, site, bob)
    look_through(page, conversation, place=3, reads=False)
    page.goto("/history/")
    expect(page.get_by_text(TITLE)).to_have_count(0)
