"""A real browser on a real server: the server of `make run` in a thread of this process, Chromium beside it.

Both are started once in each process, and so is the browser's context: a test gets a page of its own in it, whose
scripts and styles are compiled already. Between tests the page goes, the server ends its work, and the
browser forgets who was signed in and what it kept.

Run apart from the other tests (`pytest -m browser tests/browser`): a process in which sync Playwright has run cannot
run async tests any more.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.base import AXE_SCRIPT, AxeResults
from django.conf import settings as live_settings
from django.test import Client, override_settings
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, ViewportSize, expect, sync_playwright
from pytest_django.fixtures import Settings

from history.db.process_state import process_state
from project.background import lifecycle
from project.management.commands.serve import listening_socket, make_server
from relay.models import Agent
from relay.providers import registry
from tests.relay.providers.scripted import Answer, ScriptedProvider
from tests.servers.databases import close_connections

ARTEFACTS = Path(live_settings.BASE_DIR) / "artefacts"
CHROMIUM = os.environ.get("PARLEY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
# One process for all pages: to start another costs more than to show a page.
OPTIONS = ["--renderer-process-limit=1", "--disable-site-isolation-trials"]

Scripted = Callable[..., ScriptedProvider]
Look = tuple[int, str]
LOOKS: tuple[Look, ...] = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))

# A machine that does many things at once may take this long for anything; who waits for it waits no longer than needed.
expect.set_options(timeout=20_000)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        complaint = "There is no Chromium: install Debian's, or name one in PARLEY_CHROMIUM."
        pytest.fail(complaint) if os.environ.get("CI") == "true" else pytest.skip(complaint)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Sync Playwright keeps an event loop on this thread, and Django would refuse every query beside it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        # Chromium refuses its sandbox to root.
        options = [*OPTIONS, "--no-sandbox"] if os.geteuid() == 0 else OPTIONS
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield running
        running.close()


class RunningServer:
    """The server of `make run` (Daphne), in a thread of this process."""

    def __init__(self) -> None:
        self.listener = listening_socket("127.0.0.1", 0)
        self.address = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.daphne = make_server(self.listener, handles_signals=False)
        from twisted.internet import reactor

        self.reactor: Any = reactor
        self.loop: asyncio.AbstractEventLoop = self.reactor._asyncioEventloop
        self.thread = threading.Thread(target=self.daphne.run, daemon=True)

    def start(self) -> None:
        started = threading.Event()
        self.reactor.callWhenRunning(started.set)
        self.thread.start()
        assert started.wait(20), "the server did not start"
        self.drain()  # the jobs that started with it: outside a test there is no database for them

    def drain(self) -> None:
        asyncio.run_coroutine_threadsafe(lifecycle.drain(), self.loop).result(20)

    def stop(self) -> None:
        self.reactor.callFromThread(self.daphne.stop)
        self.thread.join(20)
        assert not self.thread.is_alive(), "the server did not end"

    def is_idle(self) -> bool:
        """No request is being answered and no socket is open."""
        running = [connection.get("application_instance") for connection in list(self.daphne.connections.values())]
        return all(task is None or task.done() for task in running)


@pytest.fixture(scope="session")
def server(django_db_setup: None) -> Iterator[RunningServer]:
    """The whole application."""
    with override_settings(PARLEY_BACKGROUND=False):
        server = RunningServer()
        server.start()
        yield server
        server.stop()


@pytest.fixture(scope="session")
def address(server: RunningServer) -> str:
    return server.address


@pytest.fixture
def site(server: RunningServer, address: str, transactional_db: None, settings: Settings) -> Iterator[str]:
    """The address of the whole application, which after the test does nothing any more."""
    settings.PARLEY_URL = address
    yield address
    assert comes_true(server.is_idle, seconds=15), "the server still answers a request or keeps a socket open"
    server.drain()
    close_connections()


def comes_true(condition: Callable[[], bool], *, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not condition() and time.monotonic() < end:
        time.sleep(0.01)
    return condition()


@pytest.fixture(scope="session")
def known(browser: Browser, server: RunningServer, address: str) -> Iterator[BrowserContext]:
    """A browser that has been here before. The page that stays open keeps its process alive."""
    context = new_context(browser, address)
    context.new_page().goto("/static/css/tokens.css")
    # This request has started background jobs, which read settings that the first test may change.
    server.drain()
    process_state.reset()
    yield context
    context.close()


@pytest.fixture
def anew() -> None:
    """Asked for by a test that changes the clock or the network, or wants nothing cached: a browser so far unused."""


def new_context(browser: Browser, address: str) -> BrowserContext:
    return browser.new_context(base_url=address, reduced_motion="reduce", locale="en-GB", viewport=viewport(LOOKS[0]))


@pytest.fixture
def look(request: pytest.FixtureRequest) -> Look:
    """How the page of a test looks: the first of the four, or that of an indirect parameter."""
    width, scheme = getattr(request, "param", LOOKS[0])
    return int(width), str(scheme)


@pytest.fixture
def page(
    browser: Browser, known: BrowserContext, site: str, look: Look, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A page of one width and one colour scheme; a message in its console fails the test."""
    context = new_context(browser, site) if "anew" in request.fixturenames else known
    page = context.new_page()
    wear(page, look)
    page.set_default_timeout(30_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    forget(browser, known)
    assert complaints == []


def forget(browser: Browser, known: BrowserContext) -> None:
    """Close what a test has opened, and leave the browser as it found it."""
    for context in browser.contexts:
        if context is not known:
            context.close()
    first, *others = known.pages
    for page in others:
        page.close()
    known.clear_cookies()
    known.clear_permissions()
    first.evaluate("localStorage.clear()")


# A page that is gone (410) or missing (404) on purpose is not the page's fault, nor that it asks for something while a
# test has taken the network away or while it is left. What htmx says of it, Chromium says too where it is a fault.
NO_COMPLAINTS = (
    "the server responded with a status of 4",
    "Response Status Error Code 4",
    "net::ERR_INTERNET_DISCONNECTED",
    "htmx:afterRequest",
    "htmx:sendAbort",
    "htmx:sendError",
)


def is_complaint(message: ConsoleMessage) -> bool:
    return message.type in ("error", "warning") and not any(words in message.text for words in NO_COMPLAINTS)


@pytest.fixture
def see(page: Page, look: Look, request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Let axe look at the page as it is now for what keeps people out, at each width and in each colour scheme once.

    With `--pictures` keep pictures of all four looks for people to look at. A test that asked for a look of its own,
    because it does different things there, is looked at in that one.
    """
    asked = "look" in getattr(getattr(request.node, "callspec", None), "params", {})
    pictures = bool(request.config.getoption("--pictures"))

    def see(name: str) -> None:
        for one in (look,) if asked else LOOKS:
            judged = asked or one in (LOOKS[0], LOOKS[-1])
            if not (pictures or judged):
                continue
            wear(page, one)
            if pictures:
                picture(page, f"{name}-{one[0]}-{one[1]}")
            if judged:
                judge(page, f"{name}-{one[0]}-{one[1]}")
        wear(page, look)

    return see


@pytest.fixture
def signed_in(page: Page, site: str, ada: Any) -> Page:
    enter(page, site, ada)
    return page


@pytest.fixture
def plain(page: Page) -> Page:
    """A page without scripts."""
    page.context.new_cdp_session(page).send("Emulation.setScriptExecutionDisabled", {"value": True})
    return page


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    """A provider that gives the answers of the test, in order."""

    def use(*answers: Answer) -> ScriptedProvider:
        provider = ScriptedProvider(*answers)
        process_state.set(registry.Router([provider]))
        return provider

    yield use
    process_state.reset(registry.Router)


@pytest.fixture
def one_agent(transactional_db: None) -> None:
    Agent.objects.all().delete()
    Agent.objects.create(
        name="assistant", label="Assistant", is_default=True, tools=["sys_monitor", "current_time", "ask_user"]
    )


def enter(page: Page, site: str, person: Any) -> None:
    """Signed in, without the form."""
    client = Client()
    client.force_login(person)
    page.context.add_cookies([{"name": "parley_session", "value": client.cookies["parley_session"].value, "url": site}])


def go_and_listen(page: Page, address: str) -> None:
    """Until the socket of the page is open: from then on it hears everything."""
    page.add_init_script("""
        let opened = 0;
        document.addEventListener("htmx:wsOpen", () => (document.documentElement.dataset.opened = ++opened));
    """)
    page.goto(address)
    opened(page, times=1)


def opened(page: Page, *, times: int) -> None:
    """So many sockets of the page have been opened, one after another."""
    expect(page.locator("html")).to_have_attribute("data-opened", str(times))


def until(page: Page, happened: Callable[[], bool], *, doing: Callable[[], None] = lambda: None) -> None:
    """Wait for what no element of the page tells."""
    end = time.monotonic() + 20
    while not happened():
        assert time.monotonic() < end, "it never happened"
        doing()
        page.wait_for_timeout(20)


def viewport(look: Look) -> ViewportSize:
    return {"width": look[0], "height": 844 if look[0] < 600 else 800}


def is_narrow(page: Page) -> bool:
    """By the width, not by what shows: a page whose style sheet is still on its way shows everything."""
    return page.viewport_size is not None and page.viewport_size["width"] < 600


def scheme(look: Look) -> Literal["dark", "light"]:
    return "dark" if look[1] == "dark" else "light"


def wear(page: Page, look: Look) -> None:
    page.emulate_media(color_scheme=scheme(look), reduced_motion="reduce")
    if page.viewport_size != viewport(look):
        page.set_viewport_size(viewport(look))


def picture(page: Page, name: str) -> None:
    ARTEFACTS.mkdir(exist_ok=True)
    page.screenshot(path=ARTEFACTS / f"{name}.png", full_page=True)


def judge(page: Page, name: str) -> None:
    # Diagrams are drawn in frames that other pages cannot read.
    found = find_violations(page, iframes=False)
    assert found.violations_count == 0, f"{name}: {found.generate_report()}"
    too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert too_wide <= 0, f"{name} is {too_wide} px wider than the screen"


def find_violations(page: Page, **options: Any) -> AxeResults:
    """Run axe. The script stays in the page, and only violations leave it: this halves the CPU time of a second run."""
    end_transitions(page)
    if not page.evaluate("'axe' in window"):
        page.evaluate(f"{AXE_SCRIPT}; null")
    run = "options => axe.run(options).then(({violations}) => ({violations}))"
    return AxeResults(page.evaluate(run, {"resultTypes": ["violations"], **options}))


def end_transitions(page: Page) -> None:
    """Wait for all transitions. The end of one may start another, where an element inherits what changes."""
    page.evaluate("""async () => {
        const running = () => document.getAnimations().filter((one) => one.playState === "running");
        while (running().length) {
            await Promise.allSettled(running().map((one) => one.finished));
            await new Promise(requestAnimationFrame);
        }
    }""")
