"""A real browser on a real server: uvicorn in a thread of this process, Chromium beside it.

Run apart from the other tests (`pytest -m browser tests/browser`): a process in which sync Playwright has run cannot
run async tests any more.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
import uvicorn
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings as live_settings
from django.test import Client
from playwright.sync_api import Browser, ConsoleMessage, Page, ViewportSize, sync_playwright
from pytest_django.fixtures import Settings

from relay.database import close_connections

ARTEFACTS = Path(live_settings.BASE_DIR) / "artefacts"
CHROMIUM = os.environ.get("PARLEY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")

Look = tuple[int, str]
LOOKS: tuple[Look, ...] = ((1280, "light"), (1280, "dark"), (390, "light"), (390, "dark"))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not CHROMIUM:
        complaint = "There is no Chromium: install Debian's, or name one in PARLEY_CHROMIUM."
        pytest.fail(complaint) if os.environ.get("CI") == "true" else pytest.skip(complaint)
    with pytest.MonkeyPatch.context() as patch, sync_playwright() as playwright:
        # Sync Playwright keeps an event loop on this thread, and Django would refuse every query beside it.
        patch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
        # Chromium refuses its sandbox to root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        running = playwright.chromium.launch(executable_path=CHROMIUM, args=options)
        yield running
        running.close()


@pytest.fixture
def site(transactional_db: None, settings: Settings) -> Iterator[str]:
    """The address of the whole application."""
    settings.PARLEY_BACKGROUND = False
    from project.asgi import application

    server = uvicorn.Server(uvicorn.Config(application, port=0, log_level="warning", lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive(), "the server did not start"
        time.sleep(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    settings.PARLEY_URL = f"http://127.0.0.1:{port}"
    yield settings.PARLEY_URL
    server.should_exit = True
    thread.join(20)
    assert not thread.is_alive(), "the server did not end"
    close_connections()


@pytest.fixture
def look(request: pytest.FixtureRequest) -> Look:
    """How the page of a test looks: the first of the four, or whatever the test asks for by an indirect parameter."""
    width, scheme = getattr(request, "param", LOOKS[0])
    return int(width), str(scheme)


@pytest.fixture
def page(browser: Browser, site: str, look: Look) -> Iterator[Page]:
    """A page of one width and one colour scheme; whatever the console complains of fails the test."""
    context = browser.new_context(
        base_url=site,
        viewport=viewport(look),
        color_scheme=scheme(look),
        reduced_motion="reduce",
        locale="en-GB",
    )
    page = context.new_page()
    page.set_default_timeout(30_000)
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if is_complaint(message) else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def is_complaint(message: ConsoleMessage) -> bool:
    # A page that is gone (410) or missing (404) on purpose is not the page's fault.
    return message.type in ("error", "warning") and "the server responded with a status of 4" not in message.text


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


def enter(page: Page, site: str, person: Any) -> None:
    """Signed in, without the form."""
    client = Client()
    client.force_login(person)
    page.context.add_cookies([{"name": "parley_session", "value": client.cookies["parley_session"].value, "url": site}])


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
    found = Axe().run(page)
    assert found.violations_count == 0, f"{name}: {found.generate_report()}"
    too_wide = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert too_wide <= 0, f"{name} is {too_wide} px wider than the screen"
