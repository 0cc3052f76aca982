"""Links of all pages, followed as each role: a page offers nothing that its reader may not open."""

from __future__ import annotations

import re
from collections import deque
from html.parser import HTMLParser
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client

from history.access import keys
from history.record import recorder
from history.sessions import actions
from project.accounts.models import User
from project.accounts.roles import Role, give_role
from relay.models import Agent, Allowance
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

# Exports are files, and every page of the documentation is followed by tests/project/pages/test_help.py.
LEFT_OUT = ("/static/", "/history/export/", "/help/", "/attachments/", "/api/schema")
MOST_PAGES = 200


class Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.found += [value for name in ("href", "src", "hx-get") if (value := given.get(name))]
        if tag == "form" and (given.get("method") or "get").lower() == "get":
            self.found.append(given.get("action") or "")


def links_of(page: str, address: str) -> list[str]:
    parser = Links()
    parser.feed(page)
    targets = [urlsplit(urljoin(f"http://testserver{address}", link)) for link in parser.found]
    ours = [target for target in targets if target.netloc == "testserver"]
    return [f"{target.path}?{target.query}" if target.query else target.path for target in ours]


def shape(address: str) -> str:
    """Addresses that differ in ids and values only are one page."""
    target = urlsplit(address)
    path = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|/\d+(?=/)|(?<=/keys/)[^/]+", "…", target.path)
    return f"{path}?" if target.query else path


def dead_links(client: Client) -> list[tuple[int, str, str]]:
    """Follow every kind of link once, from the first page on."""
    found: list[tuple[int, str, str]] = []
    seen: set[str] = set()
    waiting = deque([("/", "")])
    while waiting and len(seen) < MOST_PAGES:
        address, origin = waiting.popleft()
        if address.startswith(LEFT_OUT) or shape(address) in seen:
            continue
        seen.add(shape(address))
        response = client.get(address)
        if response.status_code in (301, 302):
            waiting.append((urljoin(address, response.headers["Location"]), origin))
            continue
        if not response.headers["Content-Type"].startswith("text/html"):
            continue
        page = b"".join(response).decode()
        # The form that asks auditors for a reason is the page that their link leads to.
        if response.status_code >= 400 and not re.search(r'action="/s/[^"]+/open/"', page):
            found.append((response.status_code, address, origin))
        waiting += [(link, address) for link in links_of(page, address)]
    assert len(seen) < MOST_PAGES, "pages link to ever new addresses"
    return found


def fill(ada: User) -> None:
    """A little of everything that pages list, newer than what the reader has."""
    Agent.objects.create(name="assistant", label="Assistant", is_default=True)
    Allowance.objects.create(user=ada)
    key = keys.create(name="laptop", owner=ada).api_key
    session = create_chat(ada, title="Loom", source="relay", api_key=key, agent="assistant")
    recorder.append(session, model_input("Is it running?"), after=0)
    recorder.append_many(
        session,
        [model_output("Looking.", tool_request("a")), tool_results(tool_result("a")), model_output("Yes.")],
        after=1,
    )
    actions.delete(create_chat(ada, "one", "two", title="Old"), by=ada)


def person_with(role: Role | None) -> User:
    person = User.objects.create_user("viewer", is_staff=role is None)
    if role:
        give_role(person, role)
    create_chat(person, "mine", "yours", title="Own")
    keys.create(name="own", owner=person)
    actions.delete(create_chat(person, "one", "two", title="Gone"), by=person)
    return person


@pytest.mark.parametrize("role", [*Role, None], ids=lambda role: str(role or "staff without a role"))
def test_no_link_of_a_page_is_refused_to_its_reader(client: Client, ada: User, role: Role | None) -> None:
    client.force_login(person_with(role))
    fill(ada)
    assert dead_links(client) == []


def test_no_link_of_a_page_is_refused_before_signing_in(client: Client, ada: User) -> None:
    fill(ada)
    assert dead_links(client) == []
