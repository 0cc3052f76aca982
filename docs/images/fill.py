"""Invented conversations for the pictures of `take.py`. Prints the address of each page as JSON."""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta
from functools import partial

import django

os.environ["DJANGO_SETTINGS_MODULE"] = "project.settings"
django.setup()

# isort: split
# ruff: noqa: E402
# Only now: these need the applications to be set up.
from django.utils import timezone

from history.access import keys, reasons
from history.entries import ModelInput, ModelOutput, Text, ToolRequest, ToolResult, ToolResults, Usage
from history.models import Session
from history.record import recorder
from history.transcripts import share_links
from project.accounts.models import User

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

TURNS = (9, 12, 11, 10, 8, 3, 2)  # on each day of the week
KEYS = """Two keys are enough:

1. **Packages**: the hash of `requirements.txt`. Without a hit, fall back to the newest cache of the branch.
2. **Build**: the hash of `docs/`. Restore it only if the first key was a hit.

Do not put the date into a key. It throws the cache away every night.
"""


def fill() -> dict[str, str]:
    """Create the conversations of the first user; return the address for each picture."""
    owner = User.objects.create_superuser("admin")
    now = timezone.now()
    others = [("季度报告的要点整理", 1, ""), ("Trip to Hangzhou", 1, ""), ("Clear the build cache every night?", 2, "")]
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
    cached = recorder.start_session(owner=owner, title="Cache keys for the build of the docs", agent="assistant")
    question = "Which cache keys does the build of the docs need? It installs everything anew each time."
    recorder.append_many(
        cached, [ModelInput(parts=(Text(text=question),)), spoken(parts=(Text(text=KEYS),), duration=2.2)], after=0
    )
    Session.objects.filter(pk=cached.pk).update(last_activity_at=now - timedelta(days=4, hours=1))
    _fill_days(owner)
    return {
        "chat": f"/s/{session.pk}/",
        "recorded": f"/s/{recorded.pk}/",
        "search": "/history/?q=build+cache",
        "charts": "/charts/?by=model",
        "share": _share(cached),
        "readings": f"/s/{_let_read(cached).pk}/",
        "keys": _create_keys(owner),
    }


def _fill_days(owner: User) -> None:
    """Thirty days of short conversations with three models, so that the charts have lines."""
    models = [("anthropic", "claude-sonnet"), ("openai", "gpt-luna"), ("ollama", "qwen3:8b")]
    now = timezone.now()
    for day in range(1, 30):
        for place, (provider, model) in enumerate(models):
            at = now - timedelta(days=day, hours=3)
            title = f"Notes of day {day}"
            session = recorder.start_session(owner=owner, title=title, source="relay", created_at=at)
            for turn in range(TURNS[at.weekday()] // (place + 1) + (day + place) % 2):
                recorder.append_many(
                    session,
                    [
                        ModelInput(parts=(Text(text="Next, please."),), at=at),
                        ModelOutput(
                            parts=(Text(text="Done."),),
                            provider=provider,
                            model=model,
                            usage=Usage(input_tokens=900 + 40 * day, output_tokens=120 + 9 * day),
                            latency=0.4 + place / 3,
                            duration=2.0,
                            at=at,
                        ),
                    ],
                    after=2 * turn,
                )
        Session.objects.filter(title=f"Notes of day {day}").update(last_activity_at=at, archived_at=at)


def _share(session: Session) -> str:
    link = share_links.share(session, by=session.owner)
    return f"/shared/{share_links.token_of(link)}/"


def _let_read(session: Session) -> Session:
    """A member of the staff reads the session, and says why."""
    grace = User.objects.create_superuser("grace")
    reasons.open_for_reading(grace, session, reason="The build of the docs fails: which keys did we choose?")
    return session


def _create_keys(owner: User) -> str:
    for name, scopes in [("laptop", ["relay", "read"]), ("nightly report", ["read", "export"]), ("ci", ["relay"])]:
        keys.create(name=name, owner=owner, scopes=scopes)
    return "/keys/"


if __name__ == "__main__":
    sys.stdout.write(json.dumps(fill()))
