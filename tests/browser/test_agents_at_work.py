"""The plan of an agent and the agents that it calls, above the composer, as one watches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from history.answers.events import ToolCallPiece
from history.context.values import Context
from history.dialects import CallOptions
from history.models import Session
from relay.models import Agent
from tests.browser.conftest import Scripted, enter
from tests.browser.test_chat_live import begin, finished, let_go
from tests.relay.providers.scripted import Steps

pytestmark = pytest.mark.browser

PLAN = "- [{}] Ask the harbour office\n- [{}] Compare the answers\n  - [ ] by year\n- [ ] Write it down"


def called(call_id: str, name: str, **arguments: Any) -> ToolCallPiece:
    return ToolCallPiece(part=call_id, call_id=call_id, name=name, arguments=json.dumps(arguments))


@pytest.fixture
def nested_agents(ada: Any) -> None:
    Agent.objects.all().delete()
    tools = ["update_plan", "call_agent"]
    Agent.objects.create(name="captain", label="Captain", instruction="captain", is_default=True, tools=tools)
    Agent.objects.create(name="scout", label="Scout", instruction="scout", tools=["call_agent"])
    Agent.objects.create(name="clerk", label="Clerk", instruction="clerk")


def test_the_plan_is_a_checklist_and_the_agents_a_tree_while_they_work_and_afterwards(
    page: Page, site: str, ada: Any, nested_agents: None, scripted: Scripted, see: Callable[[str], None]
) -> None:
    gate = asyncio.Event()

    def answer(context: Context, options: CallOptions) -> Steps:
        heard = sum(len(entry.results or ()) for entry in context.entries)
        if context.system == "clerk":
            return ["In 1874, ", gate, "says the book."]
        if context.system == "scout":
            return (
                "The clerk knows." if heard else [called("s1", "call_agent", agent="clerk", task="Look into the book.")]
            )
        plans = [PLAN.format("~", " "), PLAN.format("x", "~")]
        if heard in (0, 2):
            return [called(f"p{heard}", "update_plan", plan=plans[heard // 2])]
        return [called("c1", "call_agent", agent="scout", task="Ask when it was built.")] if heard == 1 else "In 1874."

    scripted(answer)
    enter(page, site, ada)
    begin(page, "When was the lighthouse built?")
    plan, agents = page.locator("#plan"), page.locator("#agents")
    expect(plan.locator("summary")).to_contain_text("0 of 4 done")
    expect(agents.locator("summary")).to_contain_text("2 called")
    expect(agents.locator("summary")).to_contain_text("2 running")
    plan.locator("summary").click()
    agents.locator("summary").click()
    expect(plan.locator(".step.doing")).to_contain_text("Ask the harbour office")
    expect(agents.locator(".agent-name")).to_have_text(["captain", "scout", "clerk"])
    see("agents-at-work")
    let_go(gate)
    finished(page)
    expect(plan.locator("summary")).to_contain_text("1 of 4 done")
    # What was unfolded has stayed so.
    expect(plan.locator(".step.done")).to_be_visible()
    expect(agents.locator(".badge")).to_have_count(0)
    expect(page.get_by_role("link", name="Open this agent’s session")).to_have_count(1)
    see("agents-done")
    agents.get_by_text("Look into the book.").click()
    page.wait_for_url(f"**/s/{Session.objects.get(agent='clerk').pk}/")
    expect(page.locator("article.answer").last).to_contain_text("In 1874, says the book.")
    page.locator("#agents summary").click()
    expect(page.locator("#agents [aria-current]")).to_contain_text("clerk")
    expect(page.locator("#plan")).to_have_count(0)
    # Sessions of agents are not in the list beside the chat.
    expect(page.locator("#sidebar-list .sidebar-session")).to_have_count(1)
    see("agents-child")
