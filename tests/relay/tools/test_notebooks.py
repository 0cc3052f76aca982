"""Notebooks: versions that are never overwritten, concurrent writers, the agent's tool, the user's page."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from asgiref.sync import async_to_sync
from django.test import Client

from history import retention
from history.entries import ToolResult
from history.models import Session
from project.accounts.models import User
from relay.models import Agent
from relay.tools.base import ToolContext, all_tools
from relay.tools.built_in import notebooks
from relay.tools.running import run_call
from tests.factories import create_chat, tool_request

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _an_agent(db: None) -> None:
    Agent.objects.get_or_create(name="assistant", defaults={"label": "Assistant"})


def edited(person: User, **arguments: str) -> ToolResult:
    session = Session.objects.create(owner=person)
    context = ToolContext(user=person, session_id=session.pk, agent="assistant")
    request = tool_request("c1", "edit_notebook", json.dumps(arguments))
    return async_to_sync(run_call)(request, toolbox=all_tools(), context=context)


def test_each_change_is_a_version_with_its_author_and_what_changed(ada: User) -> None:
    first = notebooks.write(ada, "assistant", "Likes tea.\nLives in London.", seen=0)
    second = notebooks.write(ada, "assistant", "Likes coffee.\nLives in London.", seen=first.version, by_agent=True)
    newest, oldest = notebooks.versions(ada, "assistant")
    assert (newest.author, newest.by_agent, oldest.author, oldest.by_agent) == ("assistant", True, "ada", False)
    assert newest.changes == (("-", "Likes tea."), ("+", "Likes coffee."), (" ", "Lives in London."))
    assert notebooks.read(ada, "assistant") == second
    assert Session.objects.get(source="notebook").owner == ada


def test_the_same_text_is_no_new_version(ada: User) -> None:
    first = notebooks.write(ada, "assistant", "Likes tea.", seen=0)
    assert notebooks.write(ada, "assistant", "Likes tea.\r\n", seen=first.version) == first
    assert len(notebooks.versions(ada, "assistant")) == 1


def test_who_has_not_seen_the_newest_version_is_told_and_nothing_is_written(ada: User) -> None:
    notebooks.write(ada, "assistant", "one", seen=0)
    with pytest.raises(notebooks.CannotWrite, match="changed"):
        notebooks.write(ada, "assistant", "another", seen=0)
    with pytest.raises(notebooks.CannotWrite, match="too_long"):
        notebooks.write(ada, "assistant", "x" * (notebooks.MOST_CHARS + 1), seen=1)
    assert notebooks.read(ada, "assistant").content == "one"


def test_each_person_has_their_own_with_each_agent(ada: User, bob: User) -> None:
    notebooks.write(ada, "assistant", "of Ada", seen=0)
    notebooks.write(ada, "reviewer", "of Ada too", seen=0)
    assert notebooks.read(bob, "assistant").version == 0
    assert set(notebooks.contents(ada)) == {"assistant", "reviewer"}
    assert notebooks.contents(bob) == {}


def test_one_that_was_deleted_is_empty_and_can_be_begun_anew(ada: User) -> None:
    notebooks.write(ada, "assistant", "old", seen=0)
    retention.hide(Session.objects.get(source="notebook"), actor=ada)
    assert notebooks.read(ada, "assistant").version == 0
    notebooks.write(ada, "assistant", "new", seen=0)
    assert notebooks.read(ada, "assistant").content == "new"


@pytest.mark.django_db(transaction=True)
class TestTheTool:
    def test_it_adds_replaces_and_deletes(self, ada: User) -> None:
        assert edited(ada, new="Likes tea.").status == "success"
        assert edited(ada, new="Lives in London.").status == "success"
        assert edited(ada, old="tea", new="coffee").status == "success"
        assert edited(ada, old="Lives in London.", new="").status == "success"
        assert notebooks.read(ada, "assistant").content == "Likes coffee."
        assert all(version.by_agent for version in notebooks.versions(ada, "assistant"))

    def test_what_is_not_there_exactly_once_is_an_error_that_says_so(self, ada: User) -> None:
        edited(ada, new="tea, tea")
        assert "2 times" in edited(ada, old="tea", new="coffee").error
        assert "0 times" in edited(ada, old="milk", new="coffee").error
        assert "longer than" in edited(ada, new="x" * notebooks.MOST_CHARS).error
        assert notebooks.read(ada, "assistant").content == "tea, tea"


class TestThePage:
    @pytest.fixture(autouse=True)
    def _signed_in(self, client: Client, ada: User) -> None:
        client.force_login(ada)

    def saved(self, client: Client, content: str, *, seen: Any) -> Any:
        return client.post("/notebook/assistant/", {"content": content, "seen": seen})

    def test_a_person_edits_sees_the_changes_and_restores(self, client: Client, ada: User) -> None:
        assert self.saved(client, "Likes tea.", seen=0).status_code == 302
        notebooks.write(ada, "assistant", "Likes <b>coffee</b>.", seen=1, by_agent=True)
        told = client.get("/notebook/assistant/").content.decode()
        assert "<ins>Likes &lt;b&gt;coffee&lt;/b&gt;.</ins>" in told
        assert "<del>Likes tea.</del>" in told
        assert "written by the agent assistant" in told
        assert client.post("/notebook/assistant/restore/", {"version": "1"}).status_code == 302
        assert notebooks.read(ada, "assistant").content == "Likes tea."
        assert len(notebooks.versions(ada, "assistant")) == 3
        assert "Likes tea." in client.get("/notebook/").content.decode()

    def test_the_list_shows_what_stands_in_each_and_costs_the_same_however_many_there_are(
        self, client: Client, ada: User, django_assert_max_num_queries: Any
    ) -> None:
        for name in ("assistant", "gone", "third", "fourth"):
            notebooks.write(ada, name, f"{name} at first", seen=0)
            notebooks.write(ada, name, f"{name} remembers tea", seen=1)
        with django_assert_max_num_queries(1):
            assert notebooks.contents(ada)["third"] == "third remembers tea"
        page = client.get("/notebook/").content.decode()
        assert all(f"{name} remembers tea" in page for name in ("assistant", "gone", "third", "fourth"))
        assert "at first" not in page

    def test_a_change_in_between_is_said_and_a_second_save_replaces_it(self, client: Client, ada: User) -> None:
        notebooks.write(ada, "assistant", "from elsewhere", seen=0)
        refused = self.saved(client, "mine", seen=0)
        assert refused.status_code == 422
        told = refused.content.decode()
        assert "changed in the meantime" in told
        assert "from elsewhere" in told
        assert 'name="seen" value="1"' in told
        assert self.saved(client, "mine", seen=1).status_code == 302
        assert notebooks.read(ada, "assistant").content == "mine"

    @pytest.mark.parametrize(
        "sent",
        [{}, {"content": "x"}, {"content": "x", "seen": "-1"}, {"content": "x", "seen": "9" * 30}, {"seen": "x"}],
    )
    def test_what_makes_no_sense_is_refused(self, client: Client, ada: User, sent: dict[str, str]) -> None:
        assert client.post("/notebook/assistant/", sent).status_code == 422
        assert notebooks.read(ada, "assistant").version == 0

    def test_too_long_a_text_is_refused_and_given_back(self, client: Client) -> None:
        refused = self.saved(client, "x" * (notebooks.MOST_CHARS + 1), seen=0)
        assert refused.status_code == 422
        assert "x" * notebooks.MOST_CHARS in refused.content.decode()

    def test_no_user_sees_those_of_another(self, client: Client, bob: User) -> None:
        notebooks.write(bob, "private", "of Bob", seen=0)
        assert client.get("/notebook/private/").status_code == 404
        assert client.post("/notebook/private/restore/", {"version": "1"}).status_code == 404
        assert client.post("/notebook/assistant/restore/", {"version": "7"}).status_code == 404
        assert "of Bob" not in client.get("/notebook/").content.decode()

    def test_strangers_sign_in_first(self) -> None:
        assert Client().get("/notebook/assistant/").status_code == 302


def test_a_notebook_is_no_session_of_the_history(client: Client, ada: Any) -> None:
    create_chat(ada, "Is it slow?", title="The build server")
    notebooks.write(ada, "assistant", "Likes tea.", seen=0)
    client.force_login(ada)
    html = client.get("/history/").content.decode()
    assert html.count('class="hit-title"') == 1
    assert re.search(r"<strong>1</strong>\s*<span>sessions in 30 days", html)
    assert 'value="notebook"' not in html
    assert client.get("/history/?q=assistant").content.decode().count('class="hit-title"') == 0
