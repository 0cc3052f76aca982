"""Reading a session in a browser: what a person sees, opens and follows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from history.entries import ModelOutput, Reasoning, SystemInstructionSet, Text, Usage
from history.models import Session
from history.record import recorder
from tests.factories import create_chat, model_input, model_output, tool_request, tool_result, tool_results

pytestmark = pytest.mark.browser

ANSWER = """The processor is idle, so the build is **waiting**, not computing:

| Suspect | What speaks for it | Check |
|---|---|---|
| Package cache | slow since Monday’s image | `du -sh ~/.cache` |
| Disk | the disk query itself timed out | `iostat -x 1` |

```sh
iostat -x 1 5 | awk 'NR>6 {print $1, $NF}'  # every second
```

```diff
@@ -1,2 +1,2 @@
-cache: none
+cache: local
 jobs: 2
```

```python
@retry(times=3)
def wait(seconds: float = 1.5) -> None:
    return sleep(seconds) if seconds else "no wait"
```

- [x] looked at the processor
- [ ] look at the disk[^1]

The queue has length $L = \\lambda W$:

$$
W = \\frac{1}{\\mu - \\lambda}
$$

[^1]: At night, when `cron` runs.

1. Run it now
   - and once more at night
2. 再看一次磁盘
"""


@pytest.fixture
def conversation(ada: Any) -> Session:
    session = recorder.start_session(owner=ada, title="Why is the build server slow?", source="relay", client="Codex")
    usage = Usage(input_tokens=76_000, output_tokens=412)
    asked = ModelOutput(
        parts=(Reasoning(text="CPU first."), Text(text="I will look."), tool_request("a"), tool_request("b"))
    )
    outcomes = tool_results(tool_result("a", "CPU 3 %"), tool_result("b", "", status="failed", error="timed out"))
    entries = [
        SystemInstructionSet(instruction="You look after the build machines."),
        model_input("The build takes twice as long since Monday."),
        asked,
        outcomes,
        model_output(ANSWER, usage=usage, duration=3.1),
        model_input("Go on."),
        model_output("Move the cache", status="interrupted", end_reason="client_gone"),
    ]
    recorder.append_many(session, entries, after=0)
    recorder.edit(session, seq=6, entry=model_input("Go on, please."))
    return session


def test_a_person_reads_opens_a_call_and_looks_at_another_version(
    signed_in: Page, conversation: Session, see: Callable[[str], None]
) -> None:
    page = signed_in
    page.goto(f"/s/{conversation.pk}/")
    expect(page.get_by_role("heading", level=1)).to_have_text("Why is the build server slow?")
    see("session")
    for folded in page.locator("details.tool > summary, details.fold > summary").all():
        folded.click()
    expect(page.get_by_text("timed out", exact=True)).to_be_visible()
    see("session-open")
    page.get_by_label("Previous version").click()
    expect(page.get_by_text("This is another branch")).to_be_visible()
    expect(page.get_by_text("The answer was cut short.")).to_be_visible()
    see("session-branch")


def test_older_entries_come_in_when_they_are_scrolled_to_and_nothing_jumps(
    signed_in: Page, ada: Any, see: Callable[[str], None]
) -> None:
    page = signed_in
    session = create_chat(ada, *[f"text {number}" for number in range(1, 51)])
    page.goto(f"/s/{session.pk}/")
    expect(page.locator("#m50")).to_be_in_viewport()
    page.evaluate("document.querySelector('#talk').scrollTo(0, -1e6)")
    expect(page.locator("article").first).to_have_attribute("id", "m11")
    expect(page.locator("#m31")).to_be_in_viewport()
    see("session-older")
