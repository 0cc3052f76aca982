"""Ownership of references: a key may name only its own sessions and stored answers.

Of anybody else's the caller is told that there is none. Names are noted as they pass by (`issuing`); a process that has
not seen one asks the database, where every process writes what it saw about once a second: so it asks for a little
longer than that before it says no. What no reply can have given (files, stores, prompts, caches) is nobody's, unless
the operator has listed the address where it is made: then everybody's is everybody's to use.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from django.db import DatabaseError, InterfaceError
from django.db.models import QuerySet

from history.db.transactions import writing
from history.dialects.json_access import obj, string
from history.dialects.references import (
    AUDIO,
    CACHE,
    CONTAINER,
    FILE,
    FILE_STORE,
    ITEM,
    PROMPT,
    SKILL,
    VECTOR_STORE,
    Reference,
)
from history.models import Session
from relay.gateway.call.calls import Call
from relay.gateway.call.errors import Refusal, not_found
from relay.gateway.call.session_ids import SessionName
from relay.gateway.references.issued_ids import ANSWER_PREFIXES
from relay.gateway.replies.usage import LONGEST_NAME, read_ids
from relay.gateway.routing.routes import Upstream
from relay.models import IssuedId
from relay.runtime.async_db import in_database

logger = logging.getLogger(__name__)

MOST_REMEMBERED = 20_000
ASKED_AGAIN = (0.3, 0.5, 0.7)
ASKED_AT_ONCE = 500
AGAIN = (("retry-after", "2"),)
# What replies give names to.
GIVEN = (ITEM, AUDIO, CONTAINER)
# Where things are made that requests can name. Prompts are made by hand: whoever lists their address lends them out.
OPENED_BY = {
    CONTAINER: ("/v1/containers",),
    FILE: ("/v1/files", "/v1beta/files"),
    VECTOR_STORE: ("/v1/vector_stores",),
    PROMPT: ("/v1/prompts",),
    SKILL: ("/v1/skills",),
    CACHE: ("/v1beta/cachedContents", "/v1/cachedContents"),
    FILE_STORE: ("/v1beta/fileSearchStores", "/v1/fileSearchStores"),
}

_lock = threading.Lock()
_seen: OrderedDict[tuple[int, str], None] = OrderedDict()
_unwritten: list[tuple[int, str]] = []


async def check_references(call: Call) -> None:
    if call.naming.to_check:
        await _check_session(call)
    if call.address.api.stores_answers:
        for name in _referred(call.asked):
            if await _not_issued(call.key.pk, [name]):
                raise not_found(f"Previous response with id '{name[:LONGEST_NAME]}' not found.", call.address.dialect)


def continued_id(call: Call) -> str:
    """What the vendor keeps and the call goes on from; nothing, if it tells all of it itself."""
    return next(_referred(call.asked), "") if call.address.api.stores_answers else ""


def previous_response(call: Call) -> str:
    """The answer that the call continues by name, if it names one."""
    return string(call.asked.get("previous_response_id")) if call.address.api.stores_answers else ""


async def upstreams_with_references(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """Those that have what the call refers to. Whoever is asked in other words than the caller's is not told of it."""
    native = [upstream for upstream in upstreams if upstream.is_native(call.address.dialect)]
    if not native:
        return upstreams
    given = {reference.name for reference in call.refers if reference.kind in GIVEN}
    unknown = await _not_issued(call.key.pk, given) if given else given
    for reference in call.refers:
        if reference.kind not in GIVEN or reference.name in unknown:
            upstreams = native = [upstream for upstream in native if _opens(upstream, reference.kind)]
        if not native:
            raise _unknown(reference, call.address.dialect)
    return upstreams


def _opens(upstream: Upstream, kind: str) -> bool:
    return any(upstream.provider.endpoint.lists(path) for path in OPENED_BY.get(kind, ()))


def _unknown(reference: Reference, dialect: str) -> Refusal:
    kind, name = reference.kind, reference.name[:LONGEST_NAME]
    if kind == ITEM:
        words = (
            f"Item with id '{name}' not found. Of what the vendor keeps, a key can refer to what it was given itself."
        )
    elif kind in GIVEN:
        words = f"The {kind} '{name}' was not found. A key can use those that it was given itself."
    else:
        words = (
            f"The {kind} '{name}' cannot be used here: whatever lies at the vendor is everybody's, "
            f"and the operator has not listed {OPENED_BY[kind][0]} for this provider. Send its content instead."
        )
    return not_found(words, dialect)


async def _check_session(call: Call) -> None:
    try:
        is_own = await in_database(_own_session(call).exists)
    except (DatabaseError, InterfaceError):
        # The call goes on all the same, into whichever session the digester recognises.
        call.naming = SessionName()
        return
    if not is_own:
        raise not_found(f"There is no session {call.naming.session}.", call.address.dialect)
    call.naming = replace(call.naming, to_check=False)


def _own_session(call: Call) -> QuerySet[Session]:
    return Session.objects.not_hidden().filter(pk=str(call.naming.session), api_key_id=call.key.pk)


# Names of answers.


def _referred(asked: Mapping[str, Any]) -> Iterator[str]:
    given = asked.get("conversation")
    for name in (string(asked.get("previous_response_id")), string(given) or string(obj(given).get("id"))):
        if name:
            yield name


async def _not_issued(key: int, names: Iterable[str]) -> set[str]:
    """Those that this key was not given; another process may have been told of one a moment ago."""
    unknown = set(names)
    for wait in (*ASKED_AGAIN, None):
        with _lock:
            unknown = {name for name in unknown if (key, name[:LONGEST_NAME]) not in _seen}
        try:
            known = await in_database(_issued_among, key, unknown) if unknown else ()
        except (DatabaseError, InterfaceError):
            raise Refusal("Whose answer that was cannot be looked up just now.", "overloaded", headers=AGAIN) from None
        unknown = {name for name in unknown if name[:LONGEST_NAME] not in known}
        if not unknown:
            break
        if wait is not None:
            await asyncio.sleep(wait)
    return unknown


def _issued_among(key: int, names: Iterable[str]) -> set[str]:
    asked, found = [name[:LONGEST_NAME] for name in names], set[str]()
    for start in range(0, len(asked), ASKED_AT_ONCE):
        some = asked[start : start + ASKED_AT_ONCE]
        found.update(IssuedId.objects.filter(key_id=key, name__in=some).values_list("name", flat=True))
    return found


def note_issued(call: Call, head: bytes) -> None:
    """What a reply calls itself stands at its beginning."""
    is_response = call.address.api.stores_answers
    if is_response or b'"resp_' in head or b'"conv_' in head:
        remember(call, [name for name in read_ids(head) if is_response or name.startswith(ANSWER_PREFIXES)])


def remember(call: Call, names: Iterable[str]) -> None:
    with _lock:
        for name in dict.fromkeys(names):
            pair = (call.key.pk, name[:LONGEST_NAME])
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
