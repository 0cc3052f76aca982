"""Recovery of pending calls by a new digester: their records, and nothing else, are read again from the journal.

The row of a pending call was ended only by the sweeper, which took its silence for the death of its server: the end in
the journal is the true one. Where nothing is left of a call in a damaged file, its row is ended.
"""

import logging
from collections import OrderedDict
from pathlib import Path
from uuid import UUID

from django.conf import settings

from history.models import Exchange
from history.record import exchanges
from history.record.exchanges import SERVER_LOST
from relay.digest.answers import DAMAGED, PREFILLED
from relay.digest.bodies import largest_record
from relay.digest.calls import FiledCall, PendingCall
from relay.digest.exchange_rows import HELPER
from relay.digest.positions import Position
from relay.gateway.journal.frames import RecordPosition
from relay.gateway.journal.reader import read
from relay.gateway.journal.records import Accepted, Lost
from relay.gateway.journal.segments import is_written, names

logger = logging.getLogger(__name__)

Calls = OrderedDict[UUID, PendingCall]
Losses = list[tuple[RecordPosition, Lost]]


def recover_calls(folder: Path, position: Position) -> tuple[Calls, Losses]:
    calls, lost = _read_again(folder, position)
    missing = [exchange for exchange, is_filed in position.filed.items() if is_filed and exchange not in calls]
    for lost_row in Exchange.objects.running().filter(pk__in=missing):
        logger.error("Exchange %s is missing from the journal; its outcome is unknown.", lost_row.pk)
        exchanges.finish(lost_row, None, end_reason=DAMAGED)
    rows = Exchange.objects.in_bulk([exchange for exchange in calls if position.filed[exchange]])
    for exchange, call in list(calls.items()):
        row = rows.get(exchange)
        if row is not None and (row.ended_at is None or row.end_reason == SERVER_LOST):
            _restore(call, row)
        elif row is not None or position.filed[exchange]:  # done, or erased in the meantime
            del calls[exchange]
    return calls, lost


def _restore(call: PendingCall, row: Exchange) -> None:
    call.filed = FiledCall(session_id=row.session_id, after=row.after, attempts=row.attempts - 1, metadata=row.metadata)
    request = call.request.prefilled() if PREFILLED in row.metadata else call.request
    if kind := str(row.metadata.get(HELPER, "")):
        request = request.as_side_call(kind)
    call.request = request.without_body()


def _read_again(folder: Path, position: Position) -> tuple[Calls, Losses]:
    calls: Calls = OrderedDict()
    lost: Losses = []
    there = [name for name in names(folder) if name in position.start and name in position.to]
    ended = {name for name in there if not is_written(folder / name)}
    records = read(folder, position.start, until=position.to, only=there, ended=ended, most=largest_record())
    for place, record in records:
        if isinstance(record, Lost):
            lost += [(place, record)] if record.is_damage else []
        elif not isinstance(record, Accepted):
            if (call := calls.get(record.exchange)) is not None:
                call.add(place, record)
        elif record.exchange in position.filed and settings.CHAT_HISTORY_ENABLED:
            calls[record.exchange] = PendingCall.begin(place, record)
    return calls, lost
