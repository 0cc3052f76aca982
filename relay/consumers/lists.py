"""The socket of a page that shows a list of sessions and no conversation: the history, and a chat that is not begun.

It says only that something has changed. The page asks for its list anew, as it asked for it first, so that there is one
way to read it and one place that knows what its reader may see.
"""

from __future__ import annotations

from typing import Any

from relay.consumers.sockets import NOT_SIGNED_IN, PageSocket


class ListConsumer(PageSocket):
    async def connect_page(self, user: Any) -> None:
        if not user.is_authenticated:
            await self.end(NOT_SIGNED_IN)
        await self.join_as(user)
        await self.accept()

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """Nothing is asked for here."""

    async def sidebar_changed(self, message: dict[str, Any]) -> None:
        await self.send(text_data=message["session"])

    async def resync(self, message: dict[str, Any]) -> None:
        """Any session may have changed."""
        await self.send(text_data="*")
