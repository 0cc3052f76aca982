"""Screenshots for the README (`make screenshots`), taken from a real server with invented conversations.

Needs what the browser tests need: Chromium, and for Chinese titles a font with Chinese characters.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from functools import partial
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parents[2]
PORT = "8765"
CHROMIUM = os.environ.get("PARLEY_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
ANSWER = """The processor is idle, so the build is **waiting**, not computing. Two places to look, in this order:

| Suspect | What speaks for it | Check |
|---|---|---|
| Package cache | slow since Monday’s image | `du -sh ~/.cache` |
| Disk | the query itself took 1.2 s | `iostat -x 1` |

```bash
iostat -x 1 5 | awk 'NR>6 {print $1, $NF}'
```
"""


CODE = "for attempt in range(5):\n    if charge(order):\n        break\n    sleep(2**attempt)\n"
DONE = """Done. The delay is capped at 30 seconds and the loop stops after ten minutes instead of five attempts.

```python
for delay in capped(backoff(base=2), limit=30):
    if charge(order) or clock() > deadline:
        break
    sleep(delay)
```
"""


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="parley-pictures-") as folder:
        os.environ |= {"PARLEY_DATA_DIR": folder, "PORT": PORT, "DATABASE_URL": "", "REDIS_URL": ""}
        subprocess.run([sys.executable, "manage.py", "migrate", "--verbosity", "0"], cwd=ROOT, check=True)
        addresses = _fill()
        server = subprocess.Popen([sys.executable, "manage.py", "serve"], cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            link = _link_in(server)
            _take(link, addresses)
        finally:
            server.terminate()
            server.wait(20)
    return 0


def _fill() -> dict[str, str]:
    """Create the conversations of the first user; return the address for each picture."""
    sys.path.insert(0, str(ROOT))
    os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
    import django

    django.setup()
    from django.utils import timezone

    from history.entries import ModelInput, ModelOutput, Text, ToolRequest, ToolResult, ToolResults, Usage
    from history.models import Session
    from history.record import recorder
    from project.accounts.models import User

    owner = User.objects.create_superuser("admin")
    now = timezone.now()
    others = [
        ("季度报告的要点整理", 1, ""),
        ("Trip to Hangzhou", 1, ""),
        ("Clear the build cache every night?", 2, ""),
        ("Cache keys for the build of the docs", 4, ""),
    ]
    for title, days, client in others:
        source = "relay" if client else "chat"
        other = recorder.start_session(owner=owner, title=title, client=client, source=source)
        recorder.append(other, ModelInput(parts=(Text(text=title),)), after=0)
        Session.objects.filter(pk=other.pk).update(last_activity_at=now - timedelta(days=days, hours=1))
    session = recorder.start_session(owner=owner, title="Why is the build server slow?", agent="assistant")
    calls = [
        ToolRequest(call_id=metric, name="sys_monitor", arguments=f'{{"metric": "{metric}"}}')
        for metric in ("cpu", "disk")
    ]
    found = {"cpu": ("CPU 3.0 %   load 0.41 0.38 0.36   2 cores", 0.5), "disk": ("/  61 % of 252 GB", 1.2)}
    outcomes = [
        ToolResult(call_id=name, name="sys_monitor", parts=(Text(text=text),), duration=seconds)
        for name, (text, seconds) in found.items()
    ]
    words = "The build server takes twice as long since Monday. Can you look at the machine?"
    spoken = partial(ModelOutput, provider="anthropic", model="claude-sonnet")
    recorder.append_many(
        session,
        [
            ModelInput(parts=(Text(text=words),), at=now - timedelta(seconds=9)),
            spoken(parts=tuple(calls), duration=1.4, at=now - timedelta(seconds=7)),
            ToolResults(results=tuple(outcomes), at=now - timedelta(seconds=5)),
            spoken(
                parts=(Text(text=ANSWER),),
                usage=Usage(input_tokens=1_840, output_tokens=212),
                duration=3.1,
                at=now - timedelta(seconds=2),
            ),
        ],
        after=0,
    )
    recorded = recorder.start_session(
        owner=owner, title="Refactor the payment retry loop", client="Claude Code", source="relay"
    )
    read = ToolRequest(call_id="r", name="Read", arguments='{"file_path": "payments/retry.py"}')
    test = ToolRequest(call_id="t", name="Bash", arguments='{"command": "pytest tests/payments -q"}')
    recorder.append_many(
        recorded,
        [
            ModelInput(parts=(Text(text="The retry loop gives up too early. Refactor it and keep the tests green."),)),
            spoken(parts=(Text(text="I read the loop first."), read), duration=1.1),
            ToolResults(results=(ToolResult(call_id="r", name="Read", parts=(Text(text=CODE),), duration=0.1),)),
            spoken(
                parts=(Text(text="The delay grows without a limit. I cap it and run the tests."), test), duration=2.3
            ),
            ToolResults(results=(ToolResult(call_id="t", name="Bash", parts=(Text(text="31 passed"),), duration=4.2),)),
            spoken(parts=(Text(text=DONE),), usage=Usage(input_tokens=6_210, output_tokens=404), duration=3.4),
        ],
        after=0,
    )
    return {"chat": f"/s/{session.pk}/", "recorded": f"/s/{recorded.pk}/", "search": "/history/?q=build+cache"}


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
        "chat": ("chat", 1280, 800, "light"),
        "chat-dark": ("chat", 1280, 800, "dark"),
        "chat-phone": ("chat", 390, 844, "dark"),
        "recorded": ("recorded", 1280, 800, "light"),
        "search": ("search", 1280, 800, "light"),
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
    page.screenshot(path=ROOT / "docs" / "images" / f"{name}.png")


if __name__ == "__main__":
    sys.exit(main())
