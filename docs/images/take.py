"""Screenshots for the README (`make screenshots`), taken from a real server with invented conversations.

Needs what the browser tests need: Chromium, and for Chinese titles a font with Chinese characters.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PORT = "8765"
CHROMIUM = os.environ.get("PARLEY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="parley-pictures-") as folder:
        os.environ |= {"PARLEY_DATA_DIR": folder, "PORT": PORT, "DATABASE_URL": "", "REDIS_URL": ""}
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        filled = subprocess.run(
            [sys.executable, "-m", "docs.images.fill"], cwd=ROOT, check=True, capture_output=True, text=True
        )
        addresses = json.loads(filled.stdout)
        server = subprocess.Popen([sys.executable, "manage.py", "serve"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            link = _link_in(server)
            _take(link, addresses)
        finally:
            server.terminate()
            server.wait(20)
    return 0


def _link_in(server: subprocess.Popen[str]) -> str:
    end = time.monotonic() + 60
    for line in server.stdout or ():
        if found := re.search(r"http://\S+/accounts/link/\S+", line):
            return found[0]
        if time.monotonic() > end:
            break
    raise SystemExit("The server did not start.")


def _take(link: str, addresses: dict[str, str]) -> None:
    looks = {
        "chat": ("chat", 1240, 790, "light"),
        "chat-dark": ("chat", 1240, 790, "dark"),
        "chat-phone": ("chat", 390, 844, "dark"),
        "recorded": ("recorded", 1240, 740, "light"),
        "search": ("search", 1240, 760, "light"),
        "charts": ("charts", 1240, 560, "light"),
        "share": ("share", 1240, 560, "light"),
        "readings": ("readings", 1240, 700, "light"),
        "keys": ("keys", 1240, 660, "light"),
    }
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox"] if os.geteuid() == 0 else []
        )
        context = browser.new_context(base_url=f"http://127.0.0.1:{PORT}", locale="en-GB", reduced_motion="reduce")
        page = context.new_page()
        page.goto(link)
        page.get_by_role("button").first.click()
        page.wait_for_url(f"http://127.0.0.1:{PORT}/")
        for name, (shown, width, height, scheme) in looks.items():
            _picture(page, addresses[shown], name, width=width, height=height, dark=scheme == "dark")
        browser.close()


def _picture(page: Page, address: str, name: str, *, width: int, height: int, dark: bool) -> None:
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme="dark" if dark else "light")
    page.goto(address)
    page.wait_for_load_state("networkidle")
    if name == "readings":
        page.locator("[data-readings]").click()
        page.locator(".readings").wait_for()
    page.screenshot(path=ROOT / "docs" / "images" / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
