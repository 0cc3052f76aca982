"""Agents, allowances and what is running, in the admin."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import pytest
from django.apps import apps
from django.contrib.auth.models import Permission
from django.db import connection
from django.test import Client

from project.accounts.models import User
from relay.models import Agent, Allowance, QueuedMessage, Run, Spending
from relay.tools.base import all_tools
from relay.usage import allowances
from tests.factories import create_chat

pytestmark = pytest.mark.django_db


@pytest.fixture
def admin(client: Client, admin_user: User) -> Client:
    client.force_login(admin_user)
    return client


@pytest.fixture
def read(admin: Client) -> Callable[[str], str]:
    def read(path: str) -> str:
        response = admin.get(path)
        assert response.status_code == 200
        return unescape(response.content.decode())

    return read


def form_of(agent: Agent, **changes: Any) -> dict[str, Any]:
    names = [field.name for field in Agent._meta.fields if field.name != "id"]
    values = {name: getattr(agent, name) for name in names} | changes
    return {name: value for name, value in values.items() if value not in (None, False)}


def migrate() -> None:
    """Run the data step of the first migration again: other tests may have emptied the database since."""
    migration = import_module("relay.migrations.0001_initial")
    migration.create_default_agent(apps, SimpleNamespace(connection=connection))


@pytest.fixture(autouse=True)
def _only_the_first_agent() -> None:
    Agent.objects.all().delete()
    migrate()


class TestTheFirstAgent:
    def test_the_first_start_creates_an_agent(self) -> None:
        agent = Agent.objects.get()
        assert (agent.name, agent.label, agent.is_default) == ("assistant", "Assistant", True)
        assert set(all_tools()) - set(agent.tools) == {"call_agent", "read_caller"}
        assert agent.instruction

    def test_a_start_with_agents_creates_no_further_one(self) -> None:
        Agent.objects.update(name="mine", is_default=False)
        migrate()
        assert [agent.name for agent in Agent.objects.all()] == ["mine"]


class TestAgents:
    def test_tools_are_ticked_among_those_there_are(self, admin: Client, read: Callable[[str], str]) -> None:
        agent = Agent.objects.get()
        page = read(f"/admin/relay/agent/{agent.pk}/change/")
        assert re.findall(r'<input type="checkbox" name="tools" value="(\w+)"', page) == list(all_tools())
        assert "sys_monitor: Shows how busy the server is" in page
        admin.post(f"/admin/relay/agent/{agent.pk}/change/", form_of(agent, tools=["current_time"]))
        agent.refresh_from_db()
        assert agent.tools == ["current_time"]

    def test_a_missing_tool_is_kept_until_staff_remove_it(self, admin: Client, read: Callable[[str], str]) -> None:
        agent = Agent.objects.get()
        Agent.objects.update(tools=["shell"])
        assert "shell: no longer available" in read(f"/admin/relay/agent/{agent.pk}/change/")
        admin.post(f"/admin/relay/agent/{agent.pk}/change/", form_of(agent, tools=["shell"], label="Changed"))
        agent.refresh_from_db()
        assert (agent.label, agent.tools) == ("Changed", ["shell"])

    def test_a_tool_that_never_was_is_refused(self, admin: Client) -> None:
        agent = Agent.objects.get()
        response = admin.post(f"/admin/relay/agent/{agent.pk}/change/", form_of(agent, tools=["shell"]))
        assert response.status_code == 200
        agent.refresh_from_db()
        assert "shell" not in agent.tools

    def test_a_new_default_takes_the_place_of_the_old_one(self, admin: Client) -> None:
        response = admin.post("/admin/relay/agent/add/", form_of(Agent(name="reviewer", is_default=True)))
        assert response.status_code == 302
        assert dict(Agent.objects.values_list("name", "is_default")) == {"assistant": False, "reviewer": True}

    def test_the_list_shows_who_there_is(self, read: Callable[[str], str]) -> None:
        assert "assistant" in read("/admin/relay/agent/")


class TestAllowances:
    def test_staff_set_them_on_the_page_of_a_person(self, admin: Client, ada: User, read: Callable[[str], str]) -> None:
        page = read(f"/admin/accounts/user/{ada.pk}/change/")
        assert 'name="allowance-0-messages_per_minute"' in page
        assert "0: no limit" in page

    def test_or_on_a_page_of_their_own(self, admin: Client, ada: User, read: Callable[[str], str]) -> None:
        assert "0: no limit" in read("/admin/relay/allowance/add/")
        admin.post("/admin/relay/allowance/add/", {"user": ada.pk, "messages_per_minute": 3, "cost_per_day": "0.5"})
        limits = allowances.limits_of(ada)
        assert (limits.messages_per_minute, str(limits.cost_per_day)) == (3, "0.5000")

    def test_a_negative_one_is_refused(self, admin: Client, ada: User) -> None:
        admin.post("/admin/relay/allowance/add/", {"user": ada.pk, "cost_per_day": "-1"})
        assert not Allowance.objects.exists()

    def test_what_was_used_can_be_seen_and_not_changed(
        self, admin: Client, ada: User, read: Callable[[str], str]
    ) -> None:
        allowances.note_usage(ada, tokens=1234)
        row = Spending.objects.get()
        assert "1234" in read("/admin/relay/spending/")
        assert 'name="tokens"' not in read(f"/admin/relay/spending/{row.pk}/change/")
        assert admin.post(f"/admin/relay/spending/{row.pk}/change/", {"tokens": 0}).status_code == 403
        assert admin.post(f"/admin/relay/spending/{row.pk}/delete/").status_code == 403


class TestWhatIsRunning:
    def test_runs_can_be_seen_and_not_changed(self, admin: Client, ada: User, read: Callable[[str], str]) -> None:
        run = Run.objects.create(
            session=create_chat(ada, "Where to?"), owner=ada, agent="assistant", error="in their words"
        )
        assert str(run.session_id) in read("/admin/relay/run/")
        assert str(run.session_id) in read(f"/admin/relay/run/{run.pk}/change/")
        assert "in their words" not in read(f"/admin/relay/run/{run.pk}/change/")
        assert admin.get("/admin/relay/run/?error__startswith=in").status_code == 400
        assert admin.get("/admin/relay/run/add/").status_code == 403
        assert admin.post(f"/admin/relay/run/{run.pk}/delete/").status_code == 403

    def test_of_waiting_messages_only_who_waits(self, admin: Client, ada: User, read: Callable[[str], str]) -> None:
        waiting = QueuedMessage.objects.create(session=create_chat(ada, "Where to?"), owner=ada, text="a private word")
        for path in ("", f"{waiting.pk}/change/"):
            page = read(f"/admin/relay/queuedmessage/{path}")
            assert str(waiting.session_id) in page
            assert "private" not in page
        assert admin.get("/admin/relay/queuedmessage/?text__startswith=a").status_code == 400

    def test_staff_need_the_right_to_see_them(self, client: Client, staff: User) -> None:
        client.force_login(staff)
        assert client.get("/admin/relay/run/").status_code == 403
        staff.user_permissions.add(Permission.objects.get(codename="view_run"))
        assert client.get("/admin/relay/run/").status_code == 200
