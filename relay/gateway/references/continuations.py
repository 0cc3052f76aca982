"""Conversations that a request continues by `previous_response_id` and that no vendor stores.

A translated answer has an id of ours (`resp_` and the id of its call). The conversation is sent again: from the memory
of this process, which has the newest ones for an hour, else from the record. Neither has it if the key records no
replies and another process answered: then the client must send the whole conversation.
"""

import asyncio
import threading
import time
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from uuid import UUID

from history.db.packing import attachments_of
from history.db.process_state import process_state
from history.dialects import DecodedRequest
from history.dialects.types import join_texts
from history.entries import ModelInput, ModelOutput, ToolResults
from history.models import Blob, Session
from history.record.selectors import snapshot
from relay.gateway.call.calls import Call, EarlierConversation
from relay.gateway.call.errors import LONGEST_NAME, Refusal, not_found
from relay.gateway.references import ownership
from relay.gateway.routes import Upstream
from relay.models import NamedReply
from relay.runtime.async_db import in_database

OUR_PREFIX = "resp_"
MOST_REMEMBERED, MOST_BYTES, REMEMBERED_SECONDS = 1_000, 64 * 1024 * 1024, 3_600
OUR_UUID_VERSION = 7  # `new_exchange_id`


def is_ours(name: str) -> bool:
    """Whether this is the id of a translated answer. Vendors' ids are longer, or not a UUID of that version."""
    try:
        return name.startswith(OUR_PREFIX) and UUID(hex=name[len(OUR_PREFIX) :]).version == OUR_UUID_VERSION
    except ValueError:
        return False


async def attach_earlier(call: Call, upstreams: list[Upstream]) -> None:
    """Find the conversation that the call continues, if no upstream stores it."""
    name = ownership.previous_response(call)
    if not name or (not is_ours(name) and all(one.is_native(call.address.dialect) for one in upstreams)):
        return
    call.earlier = process_state.get(ContinuationMemory).get(call.key.pk, name) or await _from_record(call.key.pk, name)


def check_continuation(call: Call, upstreams: list[Upstream]) -> None:
    """Refuse what cannot be continued: the model would answer without the conversation."""
    name = ownership.continued_id(call)
    if not name or call.earlier is not None:
        return
    if is_ours(name):
        text = f"Previous response with id '{name}' is no longer stored. Send the whole conversation."
        raise not_found(text, call.address.dialect)
    if not all(one.is_native(call.address.dialect) for one in upstreams):
        raise Refusal(f"The model '{call.model[:LONGEST_NAME]}' cannot continue {name}. Send the whole conversation.")


def with_earlier(request: DecodedRequest, earlier: EarlierConversation) -> DecodedRequest:
    """The request behind the earlier conversation. As at OpenAI, `instructions` of earlier requests do not apply."""
    return replace(
        request,
        entries=(*earlier.entries, *request.entries),
        system=join_texts((request.system, earlier.system)) or earlier.recorded_system,
        blobs={**earlier.blobs, **request.blobs},
        places=(),
    )


def remember(call: Call, request: DecodedRequest, output: ModelOutput) -> None:
    """Call it before the end of the answer is sent: a client may continue at once."""
    if not call.address.api.stores_answers or call.fields.get("store") is False:
        return
    size = len(call.body) + len(output.text) + (call.earlier.size if call.earlier else 0)
    size += sum(map(len, request.blobs.values()))
    entries = (*request.entries, output)
    earlier = EarlierConversation(entries=entries, system=call.lasting_system, blobs=request.blobs, size=size)
    process_state.get(ContinuationMemory).add(call.key.pk, call.reply_id, earlier)
    ownership.remember_issued(call, [call.reply_id])


@dataclass(slots=True)
class ContinuationMemory:
    lock: threading.Lock = field(default_factory=threading.Lock)
    conversations: OrderedDict[tuple[int, str], tuple[float, EarlierConversation]] = field(default_factory=OrderedDict)
    size: int = 0

    def get(self, key: int, name: str) -> EarlierConversation | None:
        with self.lock:
            self._drop_old()
            found = self.conversations.get((key, name))
            return found[1] if found else None

    def add(self, key: int, name: str, earlier: EarlierConversation) -> None:
        with self.lock:
            self.conversations[key, name] = (time.monotonic(), earlier)
            self.size += earlier.size
            self._drop_old()

    def _drop_old(self) -> None:
        until = time.monotonic() - REMEMBERED_SECONDS
        while self.conversations:
            at, oldest = next(iter(self.conversations.values()))
            if at > until and len(self.conversations) <= MOST_REMEMBERED and self.size <= MOST_BYTES:
                return
            self.conversations.popitem(last=False)
            self.size -= oldest.size


async def _from_record(key: int, name: str) -> EarlierConversation | None:
    """An answer of a moment ago may not be digested yet, so the database is asked again for a little while."""
    for delay in (0.0, *ownership.RETRY_DELAYS):
        await asyncio.sleep(delay)
        if found := await ownership.look_up(in_database(_recorded, key, name), "The conversation"):
            return found
    return None


def _recorded(key: int, name: str) -> EarlierConversation | None:
    in_open_sessions = NamedReply.objects.filter(session__state=Session.State.OPEN).select_related("session")
    reply = in_open_sessions.filter(key_id=key, name=name).first()
    if reply is None:
        return None
    found = snapshot(reply.session, leaf=reply.seq)
    every = (node.entry for node in found.nodes)
    entries = tuple(entry for entry in every if isinstance(entry, ModelInput | ModelOutput | ToolResults))
    # A key that records no replies has a user message there.
    if not entries or not isinstance(entries[-1], ModelOutput):
        return None
    names = {name for entry in entries for name in attachments_of(entry)}
    blobs = {pk: bytes(data) for pk, data in Blob.objects.filter(pk__in=names).values_list("pk", "data")}
    size = sum(len(str(entry)) for entry in entries) + sum(map(len, blobs.values()))
    return EarlierConversation(entries=entries, recorded_system=found.system_instruction, blobs=blobs, size=size)
