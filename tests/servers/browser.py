"""A browser without scripts: it keeps cookies, submits forms and opens the websocket of a chat page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from http.cookiejar import CookieJar
from urllib.parse import urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, Request, build_opener

from websockets.sync.client import connect
from websockets.typing import Origin

from tests.sockets import ChatPage


class Browser:
    def __init__(self) -> None:
        self.cookies = CookieJar()
        self.open = build_opener(HTTPCookieProcessor(self.cookies)).open

    def read(self, address: str) -> str:
        with self.open(address, timeout=20) as response:
            return str(response.read().decode())

    def press(self, address: str, **fields: str) -> str:
        """Submit the form of a page. The page that follows."""
        token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', self.read(address))
        assert token, "the page has no form"
        request = Request(address, data=urlencode({"csrfmiddlewaretoken": token[1], **fields}).encode())
        with self.open(request, timeout=20) as response:
            return str(response.read().decode())

    @contextmanager
    def chatting(self, address: str, html: str) -> Iterator[ChatPage]:
        """The page of a session on this server, with its websocket."""
        page, host = ChatPage(html), urlsplit(address).netloc
        headers = {"Cookie": "; ".join(f"{cookie.name}={cookie.value}" for cookie in self.cookies)}
        origin = Origin(f"http://{host}")
        with connect(f"ws://{host}{page.socket_address}", origin=origin, additional_headers=headers) as page.socket:
            yield page
