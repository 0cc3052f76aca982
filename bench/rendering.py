"""`python -m bench.rendering`: looks for Markdown that is slow to render, and says how slow against ordinary Markdown.

--seconds N    how long to look (60)
--seed N       where to begin (1)

Texts have 20,000 characters; the cost of longer ones grows with their length
(tests/history/markdown/test_linear_time.py). Marks of Markdown are put together at random, repeated, laid in lines and
mixed; the slowest found are then measured in turns with an ordinary answer of the same length. Nothing is taken from
the cache.
"""

from __future__ import annotations

import argparse
import heapq
import os
import random
import re
import sys
import tempfile
import time
from itertools import count

ORDINARY = """The processor is idle, so the build is **waiting**, not computing. See [more](https://example.org/).

## What speaks for it

1. Run `iostat -x 1` now
   - and once more at night
2. Look at the *disk* again

| Suspect | What speaks for it | Check |
|---|---|---|
| Package cache | slow since Monday's image | `du -sh ~/.cache` |
| Disk | the disk query itself timed out | `iostat -x 1` |

```python
def wait(seconds: float) -> None:
    return [x for x in range(10) if x < seconds]
```

> As the report said, it is what it is, and the rest follows from that without much ado.

"""
MARKS = [
    "*", "_", "**", "__", "***", "~~", "`", "``", "```", "[", "]", "(", ")", "![", "](", "][", "]:", "[a](b)", "[a][b]",
    "<", "<a@b>", "<http://a>", ">", "> ", "&", "&amp;", "\\", "\\*", "\n", "\n", "\n\n", "  \n", "    ", "- ", "* ",
    "1. ", "1) ", "  ", "    - ", "|", "|-", "|a|b|\n|-|-|\n", "-", "---", "===", "#", "# ", "a", "word ", "中", "'",
    '"', "!", "@", ":", "[^1]", "[^1]: ", "[a]: b", "$", "$$", "\\(", "\\)", "\\[", "\\]", "- [ ] ", "~~~", "\t", "\r",
    "\x02", "```python\n", "```js\n", "```yaml\n", "/*", "#{", "\u2028", "0",
]  # fmt: skip
CHARS = 20_000
GOAL = 8.0
"""Ordinary Markdown of this length takes some 25 ms, brackets one in another take 8 times as long."""


def ordinary_text(length: int) -> str:
    """An ordinary answer. No two of its blocks are equal: one that was rendered before costs nothing."""
    sections = (re.sub(r"\b(is|now|Disk|wait|report)\b", rf"\1 {number}", ORDINARY) for number in count())
    text = ""
    while len(text) < length:
        text += next(sections)
    return text[:length]


def made_at_random(chance: random.Random, length: int) -> str:
    def some(most: int) -> str:
        return "".join(chance.choices(MARKS, k=chance.randint(1, most)))

    way = chance.randrange(4)
    if way == 0:
        text = some(6)
    elif way == 1:
        text = some(3) * (length // 12) + some(3) * (length // 12)
    elif way == 2:
        text = "\n".join(some(2) * chance.choice([1, 1, 5, 50, 500]) for _ in range(chance.randint(2, 5))) + "\n"
    else:
        text = "".join(chance.choices(chance.sample(MARKS, chance.randint(2, 8)), k=length // 2))
    return (text * (length // len(text) + 1))[:length]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.rendering", description="Look for Markdown that is slow.")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="parley-bench-", dir="/tmp") as folder:
        os.environ |= {"PARLEY_DATA_DIR": folder, "DJANGO_SETTINGS_MODULE": "project.settings"}
        import django

        django.setup()
        return _measure(seconds=given.seconds, chance=random.Random(given.seed))


def _measure(*, seconds: float, chance: random.Random) -> int:
    from bench import measure

    ordinary = ordinary_text(CHARS)
    slowest: list[tuple[float, str]] = []
    tried, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        text = made_at_random(chance, CHARS)
        slowest = heapq.nlargest(8, [*slowest, (_rendering(text), text)])
        tried += 1
    table = measure.Table()
    print(f"\n{tried:,} texts\n\n{measure.HEAD}")
    for _, text in slowest:
        times = [(_rendering(text), _rendering(ordinary)) for _ in range(7)]
        slow, usual = min(slow for slow, _ in times), min(usual for _, usual in times)
        note = f"{slow * 1000:.0f} ms against {usual * 1000:.0f} ms"
        table.add(measure.Line(f"`{text[:24]!r}`", slow / usual, "×", goal=GOAL, note=note))
    return 0 if table.reached else 1


def _rendering(text: str) -> float:
    """Seconds of CPU time, so that other work on the machine counts less."""
    from history.markdown import cache, render

    cache.clear()
    begin = time.process_time()
    render(text)
    return time.process_time() - begin


if __name__ == "__main__":
    sys.exit(main())
