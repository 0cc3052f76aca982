"""Who is told what: groups of the channel layer. A message here is a preview; the row in the database is the truth."""

from __future__ import annotations

import logging
from typing import Any
from uuid import UUID

from channels.layers import get_channel_layer

logger = logging.getLogger(__name__)


def session_group(session_id: UUID | str) -> str:
    """Everybody who has this conversation open."""
    return f"session.{session_id}"


def person_group(user_id: int) -> str:
    """Every page that this person has open."""
    return f"person.{user_id}"


async def tell_session(session_id: UUID, message: dict[str, Any]) -> None:
    await _tell(session_group(session_id), message)


async def tell_person(user_id: int, message: dict[str, Any]) -> None:
    await _tell(person_group(user_id), message)


async def _tell(group: str, message: dict[str, Any]) -> None:
    """A layer that is away must not end an answer: pages then catch up from the database."""
    layer = get_channel_layer()
    if layer is None:
        return
    try:
        await layer.group_send(group, message)
    except Exception as error:  # noqa: BLE001 - every layer has errors of its own; all mean that nobody was told
        logger.warning("The channel layer did not take a message: %s", type(error).__name__)
