"""Another digester takes over: the calls that were under way are read again, from where they begin to where the last
one came, and nothing else that lies there.

A row whose call is under way was ended by nobody but the sweep, which took its silence for the death of its server: the
end that the journal has is the true one.
"""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from uuid import UUID

from django.conf import settings

from history.exchanges import SERVER_LOST
from history.models import Exchange
from relay.gateway.digest.exchange_rows import HELPER
from relay.gateway.digest.plans import Filed, Under
from relay.gateway.digest.positions import Position
from relay.gateway.digest.prefills import PREFILLED
from relay.gateway.digest.raw_bytes import limit
from relay.gateway.records import Accepted, Lost
from relay.gateway.segment_reader import read
from relay.gateway.segments import names


def calls_under_way(folder: Path, position: Position) -> OrderedDict[UUID, Under]:
    calls = _read_again(folder, position)
    rows = Exchange.objects.in_bulk([exchange for exchange in calls if position.filed.get(exchange, True)])
    for exchange, call in list(calls.items()):
        row = rows.get(exchange)
        if row is not None and (row.ended_at is None or row.end_reason == SERVER_LOST):
            call.filed = Filed(
                session_id=row.session_id, after=row.after, attempts=row.attempts - 1, metadata=row.metadata
            )
            asked = call.asked.prefilled() if PREFILLED in row.metadata else call.asked
            if helper := str(row.metadata.get(HELPER, "")):
                asked = asked.as_side_call(helper)
            call.asked = asked.without_body()
        elif row is not None or position.filed.get(exchange):  # done, or erased in the meantime
            del calls[exchange]
    return calls


def _read_again(folder: Path, position: Position) -> OrderedDict[UUID, Under]:
    calls: OrderedDict[UUID, Under] = OrderedDict()
    there = [name for name in names(folder) if name in position.start and name in position.to]
    for place, record in read(folder, position.start, until=position.to, only=there, most=limit()):
        if isinstance(record, Lost):  # counted already
            continue
        if not isinstance(record, Accepted):
            if (call := calls.get(record.exchange)) is not None:
                call.note(place, record)
        elif position.has_under_way(record.exchange) and settings.CHAT_HISTORY_ENABLED:
            calls[record.exchange] = Under.begun(place, record)
    return calls
