"""Another digester takes over: the calls that were under way are read again, from where they begin to where the last
one came, and nothing else that lies there.

A row whose call is under way was ended by nobody but the sweep, which took its silence for the death of its server: the
end that the journal has is the true one.

The files may have been damaged since they were read. What is missing now and was not before is lost: of a call of which
nothing is left, the row is ended.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Container
from pathlib import Path
from uuid import UUID

from django.conf import settings

from history.models import Exchange
from history.record import exchanges
from history.record.exchanges import SERVER_LOST
from relay.digest.answers import DAMAGED
from relay.digest.calls import FiledCall, PendingCall
from relay.digest.exchange_rows import HELPER
from relay.digest.positions import Position
from relay.digest.raw_bytes import largest_record
from relay.digest.recognisers.prefills import PREFILLED
from relay.gateway.journal.damage import is_damage
from relay.gateway.journal.reader import read
from relay.gateway.journal.records import Accepted, Lost
from relay.gateway.journal.segments import RecordPosition, is_written, names

logger = logging.getLogger(__name__)


def calls_under_way(
    folder: Path, position: Position
) -> tuple[OrderedDict[UUID, PendingCall], list[tuple[RecordPosition, Lost]]]:
    """The calls, and what is lost of the segments that tell of them."""
    calls, lost = _read_again(folder, position)
    _end_missing(position, calls)
    rows = Exchange.objects.in_bulk([exchange for exchange in calls if position.filed.get(exchange, True)])
    for exchange, call in list(calls.items()):
        row = rows.get(exchange)
        if row is not None and (row.ended_at is None or row.end_reason == SERVER_LOST):
            call.filed = FiledCall(
                session_id=row.session_id, after=row.after, attempts=row.attempts - 1, metadata=row.metadata
            )
            asked = call.asked.prefilled() if PREFILLED in row.metadata else call.asked
            if helper := str(row.metadata.get(HELPER, "")):
                asked = asked.as_side_call(helper)
            call.asked = asked.without_body()
        elif row is not None or position.filed.get(exchange):  # done, or erased in the meantime
            del calls[exchange]
    return calls, lost


def _end_missing(position: Position, calls: Container[UUID]) -> None:
    missing = [exchange for exchange, is_filed in position.filed.items() if is_filed and exchange not in calls]
    for row in Exchange.objects.running().filter(pk__in=missing):
        logger.error("Exchange %s is missing from the journal: nothing more is known of it.", row.pk)
        exchanges.finish(row, None, end_reason=DAMAGED)


def _read_again(
    folder: Path, position: Position
) -> tuple[OrderedDict[UUID, PendingCall], list[tuple[RecordPosition, Lost]]]:
    calls: OrderedDict[UUID, PendingCall] = OrderedDict()
    lost: list[tuple[RecordPosition, Lost]] = []
    there = [name for name in names(folder) if name in position.start and name in position.to]
    ended = {name for name in there if not is_written(folder / name)}
    for place, record in read(
        folder, position.start, until=position.to, only=there, ended=ended, most=largest_record()
    ):
        if isinstance(record, Lost):
            if is_damage(record):
                lost.append((place, record))
            continue
        if not isinstance(record, Accepted):
            if (call := calls.get(record.exchange)) is not None:
                call.note(place, record)
        elif position.has_under_way(record.exchange) and settings.CHAT_HISTORY_ENABLED:
            calls[record.exchange] = PendingCall.begun(place, record)
    return calls, lost
