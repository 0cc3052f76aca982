"""What the page shows of agents at work: the tree of their sessions, from wherever one looks, and to whom."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.db import connection
from django.test import Client

from history.entries import PlanSet
from history.models import Session
from history.record.recorder import append
from relay.live import groups
from relay.models import Run
from relay.pages.panel import Branch, plan_of, tree_of
from tests.factories import create_chat, model_output, tool_request
from tests.history.access.test_permissions import with_right
from tests.relay.agents.test_subagents import agents, call_agent
from tests.relay.conftest import Talk


@pytest.fixture
def family(ada: Any) -> list[Session]:
    """A chat, two sessions that its agent opened, and one that the second of these did."""
    root = create_chat(ada, "root", "yes", agent="boss")
    first = create_chat(ada, "first", parent=root, parent_call="c1", agent="scout")
    second = create_chat(ada, "second", parent=root, parent_call="c2", agent="cook")
    return [root, first, second, create_chat(ada, "third", parent=second, parent_call="c1", agent="scout")]


def walk(branch: Branch | None) -> list[Branch]:
    return [branch, *(one for below in branch.below for one in walk(below))] if branch else []


def names(tree: Branch | None) -> list[tuple[str, bool]]:
    return [(branch.session.title, branch.is_current) for branch in walk(tree)]


@pytest.mark.django_db
class TestTrees:
    def test_the_tree_is_the_same_from_each_of_its_sessions(self, ada: Any, family: list[Session]) -> None:
        for session in family:
            expected = [(title, title == session.title) for title in ("root", "first", "second", "third")]
            tree = tree_of(session, reader=ada)
            assert names(tree) == expected
            assert tree is not None
            assert (tree.count, tree.answering) == (3, 0)

    def test_a_session_without_agent_calls_has_none(self, ada: Any) -> None:
        assert tree_of(create_chat(ada, "alone"), reader=ada) is None

    def test_who_is_at_work_is_marked(self, ada: Any, family: list[Session]) -> None:
        Run.objects.create(session=family[3], owner=ada)
        tree = tree_of(family[0], reader=ada)
        assert tree is not None
        assert tree.answering == 1
        assert [branch.session.title for branch in walk(tree) if branch.is_answering] == ["third"]

    def test_what_was_deleted_or_is_not_for_the_reader_is_not_in_it(
        self, ada: Any, bob: Any, family: list[Session]
    ) -> None:
        Session.objects.filter(pk=family[2].pk).update(state=Session.State.DELETED, hidden_at=family[2].created_at)
        assert [title for title, _ in names(tree_of(family[0], reader=ada))] == ["root", "first"]
        assert tree_of(family[0], reader=bob) is None
        type(bob).objects.filter(pk=bob.pk).update(is_staff=True)
        seen = tree_of(family[0], reader=with_right(bob, "view_session"))
        root, first = (title for title, _ in names(seen))
        assert root == "root"
        assert first.startswith("Session of ")  # a title is text, and this reader has not opened it

    def test_a_ring_of_sessions_has_an_end(self, ada: Any, family: list[Session]) -> None:
        Session.objects.filter(pk=family[0].pk).update(parent=family[3])
        assert len(names(tree_of(family[1], reader=ada))) == 4

    def test_the_page_shows_plan_and_tree_and_each_call_leads_to_its_session(
        self, client: Client, ada: Any, family: list[Session]
    ) -> None:
        root = family[0]
        append(root, model_output("", tool_request("c1", "call_agent")), after=2)
        append(root, PlanSet(plan="- [x] Look\n- [ ] <b>Mend</b>", is_internal=True), after=3)
        client.force_login(ada)
        page = client.get(root.get_absolute_url()).content.decode()
        assert "1 of 2 done" in page
        assert "&lt;b&gt;Mend&lt;/b&gt;" in page
        assert page.count(f'href="/s/{family[1].pk}/"') == 2
        assert page.count(f'href="/s/{family[2].pk}/"') == 1

    def test_a_call_id_that_was_used_twice_leads_to_the_session_of_its_own_entry(
        self, client: Client, ada: Any, family: list[Session]
    ) -> None:
        root, first, second = family[:3]
        once = append(root, model_output("", tool_request("c1", "call_agent")), after=2).seq
        again = append(root, model_output("", tool_request("c1", "call_agent")), after=once).seq
        for seq, child in ((once, first), (again, second)):
            Session.objects.filter(pk=child.pk).update(parent_call="c1", metadata={"called_at": seq})
        client.force_login(ada)
        page = client.get(root.get_absolute_url()).content.decode()
        rows = page[page.index(f'id="m{once}"') : page.index('id="work"')]
        assert rows.index(str(first.pk)) < rows.index(f'id="m{again}"') < rows.index(str(second.pk))

    def test_a_plan_without_steps_is_none(self, ada: Any) -> None:
        session = create_chat(ada, "hello")
        assert plan_of(session) is None
        append(session, PlanSet(plan="- [ ] one"), after=1)
        plan = plan_of(session)
        assert plan is not None
        assert plan.current is not None


async def test_a_parent_session_shows_when_its_agents_start_and_end(
    talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    notify = groups.notify_session

    def count_runs() -> int:
        try:
            return Run.objects.running().count()
        finally:
            connection.close()

    def listen(session_id: Any) -> None:
        # In a thread, but awaited here: the row has to be there when the notification is sent, not soon afterwards.
        with ThreadPoolExecutor(1) as thread:
            told.append((session_id, thread.submit(count_runs).result()))
        notify(session_id)

    await agents(talk, boss=["call_agent"], scout=[])
    gate = asyncio.Event()
    talk.scripted([call_agent("scout")], ["Half", gate, "and half."], "Found.")
    monkeypatch.setattr(groups, "notify_session", listen)
    await talk.begin()
    await talk.until(lambda: (talk.session.pk, 2) in told)
    told.clear()
    gate.set()
    await talk.until_ended()
    assert (talk.session.pk, 1) in told
