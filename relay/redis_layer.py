"""The channel layer of an installation with several processes: Redis, asked with patience of our own.

The limits of Redis's client go by `asyncio.wait_for`, which in Python 3.11 forgets that its task was cancelled when the
work ends in the same moment: a socket that had gone stayed in its groups, and a run that was to end went on. So its
connections have no such limit (`settings.CHANNEL_LAYERS`); whatever is asked of Redis has one here.
"""

from __future__ import annotations

import asyncio
from typing import Any

from channels_redis.core import RedisChannelLayer  # type: ignore[import-untyped]

Message = dict[str, Any]

PATIENCE_SECONDS = 10.0


class PatientRedisLayer(RedisChannelLayer):  # type: ignore[misc]
    async def send(self, channel: str, message: Message) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await super().send(channel, message)

    async def group_add(self, group: str, channel: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await super().group_add(group, channel)

    async def group_discard(self, group: str, channel: str) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await super().group_discard(group, channel)

    async def group_send(self, group: str, message: Message) -> None:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await super().group_send(group, message)

    async def _brpop_with_clean(self, index: int, channel: str, timeout: float) -> bytes | None:  # noqa: ASYNC109
        """The next message, or None after `timeout` seconds without one; Redis keeps that time itself."""
        async with asyncio.timeout(timeout + PATIENCE_SECONDS):
            found: bytes | None = await super()._brpop_with_clean(index, channel, timeout)
        return found

    async def _clean_receive_backup(self, index: int, channel: str) -> None:
        """While this is on its way nobody in this process hears anything. What is not removed comes twice."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            await super()._clean_receive_backup(index, channel)
