"""Conversations that a request continues by `previous_response_id`, where no vendor keeps them for us.

A translated answer has a name of ours (`resp_` and the id of its call), and no vendor knows it. So the conversation is
told anew: from the memory of this process, which holds the newest ones for an hour, else from the record, which holds
all that the key records and serves every process. Neither has it if the key records no replies and another process
answered, or the hour is over: then the client is told to send the whole conversation.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from django.db import DatabaseError, InterfaceError

from history.dialects import DecodedRequest
from history.dialects.types import Said, joined
from history.entries import Media, ModelInput, ModelOutput, ToolResults
from history.models import Blob
from history.record.snapshots import snapshot
from relay.gateway.call.calls import Call, Earlier
from relay.gateway.call.errors import NAMED, Refusal, not_found
from relay.gateway.references import ownership
from relay.gateway.routing.routes import Upstream
from relay.models import NamedReply
from relay.runtime.async_db import in_database

OUR_NAMES = "resp_"
MOST_REMEMBERED, MOST_BYTES, REMEMBERED_SECONDS = 1_000, 64 * 1024 * 1024, 3_600
OUR_UUID_VERSION = 7  # `new_exchange_id`


def answer_id_of(call: Call) -> str:
    """What a translated answer to this call is named."""
    return OUR_NAMES + call.exchange.hex


def is_ours(name: str) -> bool:
    """Whether we gave that name to a translated answer. Vendors' names are longer, or no UUID of that version."""
    try:
        return name.startswith(OUR_NAMES) and UUID(hex=name[len(OUR_NAMES) :]).version == OUR_UUID_VERSION
    except ValueError:
        return False


async def attach_earlier(call: Call, upstreams: list[Upstream]) -> None:
    """Find what the call continues, where no upstream can be asked to go on from it."""
    name = ownership.previous_response(call)
    if not name or (not is_ours(name) and all(one.is_native(call.address.dialect) for one in upstreams)):
        return
    call.earlier = _memory.get(call.key.pk, name) or await _from_record(call.key.pk, name)


def check_continuation(call: Call, upstreams: list[Upstream]) -> None:
    """Refuse what cannot be continued: the model would answer as if nothing had been said."""
    name = ownership.continued_id(call)
    if not name or call.earlier is not None:
        return
    if is_ours(name):
        words = f"Previous response with id '{name}' is not kept here any more. Send the whole conversation."
        raise not_found(words, call.address.dialect)
    if not all(one.is_native(call.address.dialect) for one in upstreams):
        raise Refusal(f"The model '{call.model[:NAMED]}' knows nothing of {name}: send the whole conversation.")


def with_earlier(asked: DecodedRequest, earlier: Earlier) -> DecodedRequest:
    """The request with what came before it. As at OpenAI, `instructions` of an earlier request do not hold any more."""
    return replace(
        asked,
        entries=(*earlier.entries, *asked.entries),
        system=joined((asked.system, earlier.system)) or earlier.recorded_system,
        blobs={**earlier.blobs, **asked.blobs},
        places=(),
    )


def remember(call: Call, asked: DecodedRequest, output: ModelOutput) -> None:
    """Called before the end of the answer is sent: a client may continue at once."""
    if not call.address.api.stores_answers or call.asked.get("store") is False:
        return
    size = len(call.told) + len(output.text) + (call.earlier.size if call.earlier else 0)
    size += sum(map(len, asked.blobs.values()))
    system = call.lasting_system
    earlier = Earlier(entries=(*asked.entries, output), system=system, blobs=asked.blobs, size=size)
    _memory.add(call.key.pk, answer_id_of(call), earlier)
    ownership.remember(call, [answer_id_of(call)])


# The memory of this process.


@dataclass(slots=True)
class _Memory:
    lock: threading.Lock = field(default_factory=threading.Lock)
    kept: OrderedDict[tuple[int, str], tuple[float, Earlier]] = field(default_factory=OrderedDict)
    size: int = 0

    def get(self, key: int, name: str) -> Earlier | None:
        with self.lock:
            self._drop_old()
            found = self.kept.get((key, name))
            return found[1] if found else None

    def add(self, key: int, name: str, earlier: Earlier) -> None:
        with self.lock:
            self.kept[key, name] = (time.monotonic(), earlier)
            self.size += earlier.size
            self._drop_old()

    def _drop_old(self) -> None:
        until = time.monotonic() - REMEMBERED_SECONDS
        while self.kept:
            at, oldest = next(iter(self.kept.values()))
            if at > until and len(self.kept) <= MOST_REMEMBERED and self.size <= MOST_BYTES:
                return
            self.kept.popitem(last=False)
            self.size -= oldest.size


_memory = _Memory()


def forget_all() -> None:
    with _memory.lock:
        _memory.kept.clear()
        _memory.size = 0


# The record.


async def _from_record(key: int, name: str) -> Earlier | None:
    """What was answered a moment ago may not be digested yet: the database is asked again for a little while."""
    for wait in (*ownership.ASKED_AGAIN, None):
        try:
            found = await in_database(_recorded, key, name)
        except (DatabaseError, InterfaceError):
            words = "The conversation cannot be looked up just now."
            raise Refusal(words, "overloaded", headers=ownership.AGAIN) from None
        if found is not None or wait is None:
            return found
        await asyncio.sleep(wait)
    return None


def _recorded(key: int, name: str) -> Earlier | None:
    reply = NamedReply.objects.filter(key_id=key, name=name, session__hidden_at=None).select_related("session").first()
    if reply is None:
        return None
    taken = snapshot(reply.session, leaf=reply.seq)
    entries = tuple(
        node.entry for node in taken.nodes if isinstance(node.entry, ModelInput | ModelOutput | ToolResults)
    )
    # A key that records no replies has a question there.
    if not entries or not isinstance(entries[-1], ModelOutput):
        return None
    blobs = _blobs(entries)
    size = sum(len(str(entry)) for entry in entries) + sum(map(len, blobs.values()))
    return Earlier(entries=entries, recorded_system=taken.system_instruction, blobs=blobs, size=size)


def _blobs(entries: tuple[Said, ...]) -> Mapping[str, bytes]:
    names = {part.sha256 for part in _media(entries) if part.sha256}
    return {pk: bytes(data) for pk, data in Blob.objects.filter(pk__in=names).values_list("pk", "data")}


def _media(entries: tuple[Said, ...]) -> Iterator[Media]:
    for entry in entries:
        results = entry.results if isinstance(entry, ToolResults) else ()
        parts = () if isinstance(entry, ToolResults) else entry.parts
        for part in (*parts, *(part for result in results for part in result.parts)):
            if isinstance(part, Media):
                yield part
