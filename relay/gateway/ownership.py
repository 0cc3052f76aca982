"""What a call refers to must be its key's own: a session by its id, an answer that the vendor keeps by its name.

Of anybody else's the caller is told that there is none. Names of answers are noted as they pass by; a process that has
not seen one asks the database, where every process writes what it saw about once a second: so it asks for a little
longer than that before it says no. What counts is what a reply calls itself, not whatever stands in it: a caller can
have the vendor repeat any text.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db.models import QuerySet

from history.dialects.loose import obj, string
from history.models import Session
from history.transactions import writing
from relay.database import in_database
from relay.gateway.addresses import RESPONSES
from relay.gateway.calls import Call
from relay.gateway.naming import Naming
from relay.gateway.refusals import Refusal
from relay.gateway.usage import LONGEST_NAME, names_in
from relay.models import IssuedId

logger = logging.getLogger(__name__)

MOST_REMEMBERED = 20_000
ASKED_AGAIN = (0.3, 0.5, 0.7)
AGAIN = (("retry-after", "2"),)
OF_OTHERS = ("resp_", "conv_")

_lock = threading.Lock()
_seen: OrderedDict[tuple[int, str], None] = OrderedDict()
_unwritten: list[tuple[int, str]] = []


async def check(call: Call) -> None:
    if call.naming.to_check:
        await _check_session(call)
    if call.address.dialect == RESPONSES:
        for name in _referred(call.asked):
            if not await _is_issued(call.key.pk, name):
                raise Refusal(f"Previous response with id '{name}' not found.", "not_found")


def goes_on(call: Call) -> str:
    """What the vendor keeps and the call goes on from; nothing, if it tells all of it itself."""
    return next(_referred(call.asked), "") if call.address.dialect == RESPONSES else ""


async def _check_session(call: Call) -> None:
    try:
        is_own = await in_database(_own_session(call).exists)
    except (DatabaseError, InterfaceError):
        # The call goes on all the same, into whichever session the digester recognises.
        call.naming = Naming()
        return
    if not is_own:
        raise Refusal(f"There is no session {call.naming.session}.", "not_found")
    call.naming = replace(call.naming, to_check=False)


def _own_session(call: Call) -> QuerySet[Session]:
    return Session.objects.filter(pk=str(call.naming.session), api_key_id=call.key.pk, hidden_at=None)


# Names of answers.


def _referred(asked: Mapping[str, Any]) -> Iterator[str]:
    given = asked.get("conversation")
    for name in (string(asked.get("previous_response_id")), string(given) or string(obj(given).get("id"))):
        if name:
            yield name


async def _is_issued(key: int, name: str) -> bool:
    name = name[:LONGEST_NAME]
    known = IssuedId.objects.filter(key_id=key, name=name)
    for wait in (*ASKED_AGAIN, None):
        with _lock:
            if (key, name) in _seen:
                return True
        try:
            if await in_database(known.exists):
                return True
        except (DatabaseError, InterfaceError):
            raise Refusal("Whose answer that was cannot be looked up just now.", "overloaded", headers=AGAIN) from None
        if wait is not None:
            await asyncio.sleep(wait)
    return False


def note_issued(call: Call, head: bytes) -> None:
    """What a reply calls itself stands at its beginning."""
    is_response = call.address.dialect == RESPONSES
    if not is_response and b'"resp_' not in head and b'"conv_' not in head:
        return
    with _lock:
        for name in dict.fromkeys(names_in(head)):
            pair = (call.key.pk, name)
            if pair not in _seen and (is_response or name.startswith(OF_OTHERS)):
                _seen[pair] = None
                _unwritten.append(pair)
        while len(_seen) > MOST_REMEMBERED:
            _seen.popitem(last=False)


def write_issued() -> None:
    """The background's job, once a second; what the database does not take now it is given again."""
    with _lock:
        pairs, _unwritten[:] = list(_unwritten), []
    if not pairs:
        return
    try:
        with writing():
            IssuedId.objects.bulk_create(
                [IssuedId(key_id=key, name=name) for key, name in pairs], ignore_conflicts=True
            )
    except (DatabaseError, InterfaceError):
        with _lock:
            _unwritten[:0] = pairs[:MOST_REMEMBERED]
        raise


def forget_all() -> None:
    with _lock:
        _seen.clear()
        _unwritten.clear()
