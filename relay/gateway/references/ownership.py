"""Ownership of references: a key may use only its own sessions, stored answers and items. Others are not found.

Every process writes the ids that pass by (`issued_ids`) to the database about once a second, so a process that has not
seen an id asks there for a little longer. Files, stores, prompts and caches belong to no key: they are refused unless
the operator lists the path where they are made. Only the upstream that gave an answer can continue it. If this process
does not know which one that was, each is tried in turn: one that does not have it says so at once.
"""

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Awaitable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TypeVar

from django.db import DatabaseError, InterfaceError

from history.db.parameters import among
from history.db.process_state import process_state
from history.db.transactions import writing
from history.dialects import references as kinds
from history.dialects.json_access import obj, string
from history.dialects.references import Reference
from history.entries import JsonObject
from history.models import Session
from relay.gateway.call.calls import Call
from relay.gateway.call.errors import Refusal, not_found
from relay.gateway.call.session_ids import NOT_NAMED
from relay.gateway.references.issued_ids import ANSWER_PREFIXES
from relay.gateway.replies import LONGEST_ID, read_ids
from relay.gateway.routes import Upstream
from relay.models import IssuedId
from relay.runtime.async_db import in_database

MOST_REMEMBERED = 20_000
RETRY_DELAYS = (0.3, 0.5, 0.7)
T = TypeVar("T")
ISSUED_KINDS = (kinds.ITEM, kinds.AUDIO, kinds.CONTAINER)  # kinds of things whose ids replies give out
# Where things are made that requests can refer to. Prompts are made by hand: an operator who lists their path lends
# them.
CREATION_PATHS = {
    kinds.CONTAINER: ("/v1/containers",),
    kinds.FILE: ("/v1/files", "/v1beta/files"),
    kinds.VECTOR_STORE: ("/v1/vector_stores",),
    kinds.PROMPT: ("/v1/prompts",),
    kinds.SKILL: ("/v1/skills",),
    kinds.CACHE: ("/v1beta/cachedContents", "/v1/cachedContents"),
    kinds.FILE_STORE: ("/v1beta/fileSearchStores", "/v1/fileSearchStores"),
}


@dataclass(slots=True)
class IssuedIdCache:
    """Ids that replies gave out, by key and id, with the provider if it was one of several."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    seen: OrderedDict[tuple[int, str], str] = field(default_factory=OrderedDict)
    unwritten: list[tuple[int, str]] = field(default_factory=list)  # not in the database yet


async def check_references(call: Call) -> None:
    if call.session_name.to_check:
        await _check_session(call)
    if call.address.api.stores_answers:
        for name in _continued_ids(call.fields):
            if await _not_issued(call.key.pk, [name]):
                raise not_found(f"Previous response with id '{name[:LONGEST_ID]}' not found.", call.address.dialect)


async def _check_session(call: Call) -> None:
    own = Session.objects.open().filter(pk=str(call.session_name.session), api_key_id=call.key.pk)
    try:
        is_own = await in_database(own.exists)
    except (DatabaseError, InterfaceError):
        # The call continues, in the session that the digester finds.
        call.session_name = NOT_NAMED
        return
    if not is_own:
        raise not_found(f"Session {call.session_name.session} not found.", call.address.dialect)
    call.session_name = replace(call.session_name, to_check=False)


def continued_id(call: Call) -> str:
    """The id of the stored answer or conversation that the call continues; empty if the call has all of it."""
    return next(_continued_ids(call.fields), "") if call.address.api.stores_answers else ""


def previous_response(call: Call) -> str:
    """The id of the answer that the call continues, if it names one."""
    return string(call.fields.get("previous_response_id")) if call.address.api.stores_answers else ""


def _continued_ids(fields: JsonObject) -> Iterator[str]:
    conversation = fields.get("conversation")
    ids = (string(fields.get("previous_response_id")), string(conversation) or string(obj(conversation).get("id")))
    yield from filter(None, ids)


async def upstreams_with_references(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """Upstreams that have what the call refers to. An upstream of another dialect does not get the references."""
    native = [upstream for upstream in upstreams if upstream.is_native(call.address.dialect)]
    if not native:
        return upstreams
    given = {reference.name for reference in call.references if reference.kind in ISSUED_KINDS}
    unknown = await _not_issued(call.key.pk, given) if given else given
    for reference in call.references:
        if reference.kind not in ISSUED_KINDS or reference.name in unknown:
            paths = CREATION_PATHS.get(reference.kind, ())
            upstreams = native = [upstream for upstream in native if any(map(upstream.provider.endpoint.lists, paths))]
        if not native:
            raise _unknown(reference, call.address.dialect)
    return upstreams


def _unknown(reference: Reference, dialect: str) -> Refusal:
    kind, name = reference.kind, reference.name[:LONGEST_ID]
    if kind == kinds.ITEM:
        text = f"Item with id '{name}' not found. "
        text += "A key can refer only to items that it received."
    elif kind in ISSUED_KINDS:
        text = f"The {kind} '{name}' was not found. A key can use only its own."
    else:
        text = (
            f"The {kind} '{name}' cannot be used: all keys share what the provider stores, "
            f"and the operator has not listed {CREATION_PATHS[kind][0]} for this provider. Send its content instead."
        )
    return not_found(text, dialect)


async def _not_issued(key: int, names: Iterable[str]) -> set[str]:
    """Ids that this key was not given; another process may have seen one a moment ago."""
    issued, unknown = process_state.get(IssuedIdCache), set(names)
    for delay in (0.0, *RETRY_DELAYS):
        await asyncio.sleep(delay)
        with issued.lock:
            unknown = {name for name in unknown if (key, name[:LONGEST_ID]) not in issued.seen}
        if not unknown:
            break
        known = await look_up(in_database(_issued_among, key, unknown), "The owner of this response")
        unknown = {name for name in unknown if name[:LONGEST_ID] not in known}
    return unknown


async def look_up(query: Awaitable[T], what: str) -> T:
    """The result of a query. Without the database the caller is told to try again."""
    try:
        return await query
    except (DatabaseError, InterfaceError):
        text = f"{what} cannot be checked at the moment. Try again in a few seconds."
        raise Refusal(text, "overloaded", headers=(("retry-after", "2"),)) from None


def _issued_among(key: int, names: Iterable[str]) -> set[str]:
    ids = among([name[:LONGEST_ID] for name in names], kind=str)
    return set(IssuedId.objects.filter(key_id=key, name__in=ids).values_list("name", flat=True))


def note_issued(call: Call, head: bytes, provider: str = "") -> None:
    """Note the ids of a reply, which are at its beginning. `provider` gave it, and others might have."""
    is_response = call.address.api.stores_answers
    if is_response or b'"resp_' in head or b'"conv_' in head:
        names = [name for name in read_ids(head) if is_response or name.startswith(ANSWER_PREFIXES)]
        remember_issued(call, names, provider if is_response else "")


def remember_issued(call: Call, names: Iterable[str], provider: str = "") -> None:
    issued = process_state.get(IssuedIdCache)
    with issued.lock:
        for name in dict.fromkeys(names):
            pair = (call.key.pk, name[:LONGEST_ID])
            if pair not in issued.seen:
                issued.unwritten.append(pair)
            issued.seen[pair] = provider or issued.seen.get(pair, "")
        while len(issued.seen) > MOST_REMEMBERED:
            issued.seen.popitem(last=False)


def flush_issued_ids() -> None:
    """A background job, once a second. After an error of the database the ids are written the next time."""
    issued = process_state.get(IssuedIdCache)
    with issued.lock:
        pairs, issued.unwritten[:] = list(issued.unwritten), []
    if not pairs:
        return
    try:
        with writing():
            ids = [IssuedId(key_id=key, name=name) for key, name in pairs]
            IssuedId.objects.bulk_create(ids, ignore_conflicts=True)
    except (DatabaseError, InterfaceError):
        with issued.lock:
            issued.unwritten[:0] = pairs[:MOST_REMEMBERED]
        raise


def upstreams_with_answer(call: Call, upstreams: list[Upstream]) -> list[Upstream]:
    """Upstreams that can continue the call: all, unless it continues an answer that one of them stores."""
    name = continued_id(call) if len(upstreams) > 1 else ""
    if not name:
        return upstreams
    issued = process_state.get(IssuedIdCache)
    with issued.lock:
        provider = issued.seen.get((call.key.pk, name), "")
    found = [upstream for upstream in upstreams if upstream.provider.name == provider]
    call.is_origin_unknown = not found
    return found or upstreams
