"""The export of ChatGPT: `conversations.json` in a zip, a list of conversations, each a tree of messages.

`current_node` is the leaf that the person saw last; every other branch is a version that was edited or answered anew,
and is kept. Tool calls are messages with a recipient other than `all`, answers of role `tool`; calls have no ids, so
a result belongs to the call above it. Pictures and files lie beside the list, under names that begin with their id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from history.dialects.json_access import items, obj, string
from history.formats.base import Conversation, FormatError, Notes, UnreadableConversation, gettext_noop
from history.formats.many import read_each
from history.formats.readers.chatgpt_messages import ChatGptMessages
from history.formats.sources import Sample, Source
from history.formats.times import Clock, moment
from history.formats.trees import Tree

NAME = "chatgpt"
CLIENT = "ChatGPT"


def recognises(sample: Sample) -> bool:
    return any(isinstance(item.get("mapping"), Mapping) for item in sample.items)


def read(source: Source) -> Iterator[Conversation | UnreadableConversation]:
    yield from read_each(source, lambda item: _conversation(item, source))


def _conversation(item: Mapping[str, Any], source: Source) -> Iterator[Conversation]:
    mapping = {name: obj(node) for name, node in obj(item.get("mapping")).items()}
    source_id = string(item.get("conversation_id")) or string(item.get("id"))
    if not source_id:
        raise FormatError(gettext_noop("it has no id"))
    notes, clock = Notes(), Clock(item.get("create_time"))
    tree = Tree(notes)
    messages = ChatGptMessages(tree, clock, companion=source.companion)
    ends: dict[str, str] = {}
    for name in _ordered(mapping):
        parent = string(mapping[name].get("parent"))
        after = ends.get(parent, parent)
        ends[name] = messages.add(name, obj(mapping[name].get("message")), parent=after, above=parent)
    messages.finish()
    if not tree.items:
        raise FormatError(gettext_noop("it has no messages"))
    tree.leaf = ends.get(string(item.get("current_node")), "")
    nodes, leaf = tree.nodes()
    yield Conversation(
        source_id=source_id,
        client=CLIENT,
        nodes=nodes,
        leaf=leaf,
        title=string(item.get("title")),
        created_at=moment(item.get("create_time")) or clock.first,
        updated_at=moment(item.get("update_time")),
        model=string(item.get("default_model_slug")),
        agent=string(item.get("gizmo_id")),
        metadata={"archived": True} if item.get("is_archived") is True else {},
        blobs=messages.blobs,
        notes=notes.as_tuple(),
    )


def _ordered(mapping: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Parents before their children, and children in the order in which their parent names them."""
    children: dict[str, list[str]] = {name: _named(node) for name, node in mapping.items()}
    for name, node in mapping.items():
        children.setdefault(string(node.get("parent")), []).append(name)
    order: list[str] = []
    seen: set[str] = set()
    roots = [name for name, node in mapping.items() if string(node.get("parent")) not in mapping]
    for root in (*roots, *mapping):  # what leads round in a circle is reached from no root
        waiting = [root]
        while waiting:
            name = waiting.pop()
            if name not in seen and name in mapping:
                seen.add(name)
                order.append(name)
                waiting += reversed(children[name])
    return order


def _named(node: Mapping[str, Any]) -> list[str]:
    return [child for child in items(node.get("children")) if isinstance(child, str)]
