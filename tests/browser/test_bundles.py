"""The chat page as `make run` serves it: few requests, and joined scripts that work."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.servers.processes import clean_environment, free_port, is_answering, run_process, wait_for

pytestmark = pytest.mark.browser
MOST_REQUESTS, MOST_BYTES = 12, 80_000


@pytest.fixture(scope="module")
def sign_in_link(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of its own, with collected files."""
    folder, port = tmp_path_factory.mktemp("served"), free_port()
    environment = clean_environment(PARLEY_DATA_DIR=str(folder / "data"), PORT=str(port))
    command = [sys.executable, "manage.py", "serve"]
    with run_process(command, log=folder / "log", environment=environment) as server:
        wait_for(lambda: is_answering(port, "/readyz"), seconds=60, what="serving")
        found = re.search(r"http://\S+/accounts/link/\S+/", server.output)
        assert found
        yield found[0]


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    context = browser.new_context(locale="en-GB")
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    context.close()
    assert complaints == []


def test_a_cold_chat_page_makes_few_requests_and_its_scripts_work(page: Page, sign_in_link: str) -> None:
    page.goto(sign_in_link)
    page.locator("main form button").first.click()
    page.locator("#composer-text").fill("/sys_monitor cpu")
    page.keyboard.press("Enter")
    expect(page.locator("article.answer")).to_be_visible()
    cdp = page.context.new_cdp_session(page)
    cdp.send("Network.enable")
    cdp.send("Network.clearBrowserCache")
    transfers: list[float] = []
    cdp.on("Network.loadingFinished", lambda event: transfers.append(event["encodedDataLength"]))
    opened: list[str] = []
    page.on("request", lambda request: opened.append(request.url))
    page.on("websocket", lambda socket: opened.append(socket.url))
    page.reload(wait_until="networkidle")
    assert len(opened) <= MOST_REQUESTS, opened
    assert sum(transfers) <= MOST_BYTES
    assert len([url for url in opened if url.endswith(".css")]) == len([url for url in opened if ".js" in url]) == 1
    # One script of each kind: the shortcuts, the palette, the list, the socket.
    page.locator("#talk").focus()
    page.keyboard.press("?")
    expect(page.locator("#keys")).to_be_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("Control+k")
    expect(page.locator("#palette a[role=option]").first).to_be_visible()
    page.keyboard.press("Escape")
    page.locator("#composer-text").fill("/sys_monitor memory")
    page.keyboard.press("Enter")
    expect(page.locator("article.answer")).to_have_count(2)
    page.goto(page.url.split("/s/")[0] + "/charts/")
    expect(page.locator("h1")).to_have_text("Charts")
    page.goto(page.url.replace("/charts/", "/history/"))
    expect(page.locator("li.hit")).to_have_count(1)
