"""Clients of both websockets: a chat page without a browser, and a program at `/ws/v1/`.

`ChatPage` puts what comes over the socket into the served HTML, as htmx does. `ProgramSocket` checks the
numbers of the frames: none is missing, none comes twice.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from typing import Any

from websockets.sync.client import ClientConnection

VOID = {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
BLOCKS = {"p", "div", "article", "section", "li", "pre", "h1", "h2", "h3", "tr", "blockquote"}


class Node:
    def __init__(self, tag: str, attributes: dict[str, str], parent: Node | None) -> None:
        self.tag, self.attributes, self.parent = tag, attributes, parent
        self.children: list[Node | str] = []

    def all(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            if isinstance(child, Node):
                yield from child.all()

    def find(self, element_id: str) -> Node | None:
        return next((node for node in self.all() if node.attributes.get("id") == element_id), None)

    def take(self, children: list[Node | str]) -> None:
        for child in children:
            if isinstance(child, Node):
                child.parent = self
        self.children += children

    def put_instead(self, node: Node | None) -> None:
        assert self.parent is not None
        place = self.parent.children.index(self)
        self.parent.children[place : place + 1] = [] if node is None else [node]
        if node is not None:
            node.parent = self.parent

    @property
    def text(self) -> str:
        """As a user reads it: one line for each block, one space where there were many."""
        texts = [child if isinstance(child, str) else child.text for child in self.children]
        words = re.sub(r"[ \t\r\n]+", " ", "".join(texts)) if self.tag != "pre" else "".join(texts)
        return f"\n{words.strip()}\n" if self.tag in BLOCKS else words


class Tree(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.root = self.here = Node("root", {}, None)
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        node = Node(tag, {name: value or "" for name, value in attrs}, self.here)
        self.here.children.append(node)
        if tag not in VOID:
            self.here = node

    def handle_endtag(self, tag: str) -> None:
        place: Node | None = self.here
        while place is not None and place.tag != tag:
            place = place.parent
        if place is not None and place.parent is not None:
            self.here = place.parent

    def handle_data(self, data: str) -> None:
        self.here.children.append(data)


class ChatPage:
    """`largest` is the longest frame that came."""

    socket: ClientConnection

    def __init__(self, html: str) -> None:
        self.root, self.largest = Tree(html).root, 0

    @property
    def socket_address(self) -> str:
        chat = self.root.find("chat")
        assert chat is not None
        return chat.attributes["ws-connect"]

    def send_json(self, kind: str, **what: Any) -> None:
        self.socket.send(json.dumps({"type": kind, **what}))

    def until(
        self, is_it: Callable[[ChatPage], Any], *, seconds: float = 60, each: Callable[[ChatPage], Any] | None = None
    ) -> Any:
        """Put in what comes, until this is true of the page. `each` looks at the page after every frame."""
        end = time.monotonic() + seconds
        while not (found := is_it(self)):
            try:
                self.receive(timeout=max(0.01, end - time.monotonic()))
            except TimeoutError:
                raise AssertionError(f"it did not happen; the page says:\n{self.talk}") from None
            if each is not None:
                each(self)
        return found

    def receive(self, *, timeout: float) -> None:
        html = str(self.socket.recv(timeout=timeout))
        self.largest = max(self.largest, len(html))
        for node in [child for child in Tree(html).root.children if isinstance(child, Node)]:
            self._put(node)

    def _put(self, node: Node) -> None:
        how, _, selector = node.attributes.pop("hx-swap-oob", "outerHTML").partition(":")
        target = self.root.find(selector.removeprefix("#") or node.attributes["id"])
        assert target is not None, f"there is no {selector or node.attributes['id']} on the page"
        if how == "beforeend":
            target.take(node.children)
        elif how == "innerHTML":
            target.children = []
            target.take(node.children)
        else:
            target.put_instead(None if how == "delete" else node)

    @property
    def rows(self) -> list[Node]:
        rows = self.root.find("rows")
        return [child for child in rows.children if isinstance(child, Node)] if rows else []

    @property
    def talk(self) -> str:
        return re.sub(r"\n{2,}", "\n", "\n".join(row.text for row in self.rows))

    @property
    def words(self) -> list[str]:
        """What the played vendors said, word by word: w0, w1, w2 …"""
        return re.findall(r"\bw\d+\b", self.talk)

    @property
    def announced(self) -> str:
        return self._text_of("announcer")

    @property
    def is_degraded(self) -> bool:
        """Whether the page says that Redis is away."""
        notice = self.root.find("degraded")
        return notice is not None and "hidden" not in notice.attributes

    @property
    def notices(self) -> str:
        return self._text_of("notices")

    @property
    def queue(self) -> str:
        """Messages that wait, and why."""
        return self._text_of("queue")

    def _text_of(self, element_id: str) -> str:
        element = self.root.find(element_id)
        return element.text.strip() if element else ""

    @property
    def run(self) -> str:
        """The run that the stop button stops, if there is one."""
        actions = self.root.find("composer-actions")
        found = (
            re.search(r'"run": "([0-9a-f-]+)"', str([node.attributes for node in actions.all()])) if actions else None
        )
        return found[1] if found else ""

    @property
    def after(self) -> int:
        element = self.root.find("composer-after")
        return int(element.attributes["value"]) if element else 0


Frame = dict[str, Any]


class ProgramSocket:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.frames: list[Frame] = []
        self.largest = 0
        self.texts: dict[str, str] = {}
        self._last: dict[str, int] = {}
        self.welcome = self.until(lambda frame: frame["type"] == "welcome")

    def request(self, kind: str, **what: Any) -> Frame:
        request_id = f"{kind}-{len(self.frames)}"
        self.socket.send(json.dumps({"type": kind, "id": request_id, **what}))
        answer = self.until(lambda frame: frame.get("id") == request_id)
        assert answer["type"] == kind, answer
        return answer

    def until(self, is_it: Callable[[Frame], Any], *, seconds: float = 60) -> Frame:
        """The next thing that it is told of which this is true."""
        end = time.monotonic() + seconds
        while True:
            try:
                frame = self.receive(timeout=max(0.01, end - time.monotonic()))
            except TimeoutError:
                raise AssertionError(f"it did not come, but: {self.frames[-5:]}") from None
            if is_it(frame):
                return frame

    def until_text(self, run: str, has: Callable[[str], bool], *, seconds: float = 60) -> None:
        if not has(self.texts.get(run, "")):
            self.until(lambda frame: has(self.texts.get(run, "")), seconds=seconds)

    def ended(self, run: str, *, seconds: float = 60) -> Frame:
        """The end of a run, which may have come before the answer to a command."""

        def is_it(frame: Frame) -> bool:
            return bool(frame["type"] == "run.ended" and frame["run"] == run)

        return next(filter(is_it, self.frames), None) or self.until(is_it, seconds=seconds)

    def receive(self, *, timeout: float) -> Frame:
        content = str(self.socket.recv(timeout=timeout))
        self.largest = max(self.largest, len(content))
        frame: Frame = json.loads(content)
        self.frames.append(frame)
        for running in frame.get("running", ()):
            self.texts[running["run"]] = text_in(running["pieces"])
            self._last[running["run"]] = running["n"]
        if frame["type"].startswith("run."):
            self._count(frame)
        return frame

    def _count(self, frame: Frame) -> None:
        run, last = frame["run"], self._last.get(frame["run"], 0)
        if "n" in frame:
            assert frame.get("since", frame["n"] - 1) == last, f"after {last} came {frame}"
            self._last[run] = frame["n"]
        if frame["type"] == "run.pieces":
            self.texts[run] = self.texts.get(run, "") + text_in(frame["pieces"])

    def words(self, run: str) -> list[str]:
        return words_in(self.texts.get(run, ""))

    def close(self) -> None:
        self.socket.close()


def text_in(pieces: list[list[str]]) -> str:
    return "".join(piece[2] for piece in pieces if piece[0] == "text")


def words_in(text: str) -> list[str]:
    return re.findall(r"\bw\d+\b", text)
