"""An export of ChatGPT with very many messages: how fast it comes in, and whether memory stays flat."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from django.contrib.auth import get_user_model

from bench.load import vocabulary
from bench.measure import Line, Table, memory_growth, seconds
from history import importing

PER_CONVERSATION = 50
GROWTH_MIB = 48


def measure(table: Table, folder: str, *, messages: int) -> None:
    path = Path(folder) / "conversations.json"
    write(path, conversations=max(messages // PER_CONVERSATION, 1))
    owner = get_user_model().objects.order_by("pk")[0]
    megabytes = path.stat().st_size / 2**20
    note = f"{messages:,} messages, {megabytes:,.0f} MB"
    with memory_growth() as growth:
        took = seconds(lambda: importing.Import(owner).run(importing.files_at([path])))
    table.add(Line("importing", messages / took, "/s", note=note))
    table.add(Line("memory while importing", growth[0], "MiB", goal=GROWTH_MIB, note=note))
    again = seconds(lambda: importing.Import(owner).run(importing.files_at([path])))
    table.add(Line("importing again: all there", messages / again, "/s", note=note))
    path.unlink()


def write(path: Path, *, conversations: int) -> None:
    words = vocabulary()
    with path.open("w") as file:
        for number in range(conversations):
            file.write("[" if number == 0 else ",")
            json.dump(_conversation(number, words), file)
        file.write("]")


def _conversation(number: int, words: Any) -> dict[str, Any]:
    name = f"{number:08x}-0000-4000-8000-000000000000"
    mapping = {f"n{place}": _node(number, place, words) for place in range(PER_CONVERSATION)}
    return {
        "title": f"Conversation {number}",
        "create_time": 1.7e9 + number,
        "conversation_id": name,
        "current_node": f"n{PER_CONVERSATION - 1}",
        "mapping": mapping,
    }


def _node(number: int, place: int, words: Any) -> dict[str, Any]:
    said = " ".join(words[(number * 31 + place * 17 + step * 7) % len(words)] for step in range(60))
    role = "assistant" if place % 2 else "user"
    message = {
        "id": f"n{place}",
        "author": {"role": role},
        "create_time": 1.7e9 + number + place,
        "content": {"content_type": "text", "parts": [said]},
        "metadata": {"model_slug": "gpt-5"},
        "recipient": "all",
    }
    children = [f"n{place + 1}"] if place + 1 < PER_CONVERSATION else []
    return {"id": f"n{place}", "parent": f"n{place - 1}" if place else None, "children": children, "message": message}
