"""What a call refers to must be its key's own: a session by its id, an answer that the vendor keeps by its name.

Of anybody else's the caller is told that there is none. Names of answers are noted as they pass by; a process that has
not seen one asks the database, where every process writes what it saw about once a second.
"""

from __future__ import annotations

import logging
import re
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
from relay.models import IssuedId

logger = logging.getLogger(__name__)

MOST_REMEMBERED = 20_000
_ISSUED = re.compile(rb'"id"\s*:\s*"((?:resp|conv)_[\w-]{1,180})"')

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
    with _lock:
        if (key, name) in _seen:
            return True
    try:
        return await in_database(IssuedId.objects.filter(key_id=key, name=name[:200]).exists)
    except (DatabaseError, InterfaceError):
        return False


def note_issued(call: Call, head: bytes) -> None:
    """What a reply calls itself stands at its beginning."""
    if b'"resp_' not in head and b'"conv_' not in head:
        return
    with _lock:
        for name in dict.fromkeys(_ISSUED.findall(head)):
            pair = (call.key.pk, name.decode())
            if pair not in _seen:
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
