"""Insertion of restored entries with their numbers, parents, times, salts and seals.

The rules for head, path and calls are those of the recorder, because it is the recorder's draft that is filled; only
what would be decided there (the number, the salt, the seal, what is redacted) stands in the file already.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from history.db.packing import Packed
from history.entries import CONVERSATION, LEAVES, Gap, ModelOutput
from history.formats.jsonl.reading import RestoredEntry
from history.models import Message, ToolCall
from history.models.append_only import writable
from history.record import fingerprints, projections, writer
from history.record.row_builder import Draft, DraftRow, Position, advance, is_message, load_position, next_position


class EntryInserter(Draft):
    """A session that entries are laid down in, oldest first. It must be locked."""

    def __post_init__(self) -> None:
        session = self.session
        self.leaf = session.head
        self.scope = fingerprints.scope_of(api_key_id=session.api_key_id, owner_id=session.owner_id)
        self.positions: dict[int, Position] = {}
        self.calls: list[tuple[Message, dict[str, Any]]] = []  # of entries without texts, to be written with them

    def lay(self, laid: RestoredEntry) -> None:
        if laid.seq <= self.session.trimmed_through:
            self._put_row(laid, position=Position(fingerprints.START), on_path=True, moved=laid.moved)
            self._count(laid)
            return
        if laid.is_move:
            self._move(laid.parent)
        position = self._position_of(laid.parent)
        moves = laid.kind not in LEAVES and self._moves(laid)
        row = self._put_row(laid, position=position, on_path=moves, moved=moves or laid.is_move)
        self._count(laid)
        self.session.version, self.session.last_seal = laid.seq, laid.seal
        if laid.kind not in LEAVES:
            self._go_on(laid, row, moves=moves)

    def write(self) -> None:
        """The rows so far, and what is left of calls whose texts were dropped."""
        writer.flush([self])
        self.write_calls()

    def write_calls(self) -> None:
        calls = [ToolCall(session=self.session, message=message, **fields) for message, fields in self.calls]
        writer.insert_calls(calls)
        self.calls.clear()

    def close(self) -> None:
        """What can be known only at the end: whether what a trim left standing is on the path to the head."""
        session = self.session
        if not session.trimmed_through:
            return
        entries = Message.objects.of(session)
        path = entries.filter(on_path=True, seq__gt=session.trimmed_through).order_by("seq")
        first = path.values_list("parent_seq", flat=True).first() or 0
        is_anchored = 0 < (first or session.head) <= session.trimmed_through
        wrong = entries.filter(seq__lte=session.trimmed_through).exclude(on_path=is_anchored)
        writable(wrong).update(on_path=is_anchored)

    def _moves(self, laid: RestoredEntry) -> bool:
        session = self.session
        if session.trimmed_through and session.head == 0 and laid.parent <= session.trimmed_through:
            return laid.moved  # where the head was before the first entry that is left, only the entry itself knows
        return laid.parent == session.head

    def _move(self, to: int) -> None:
        self.write()
        session = self.session
        if not 0 < to <= session.trimmed_through:
            writer.move_head(session, to=to)
            return
        path = Message.objects.on_path(session).filter(seq__gt=session.trimmed_through)
        writable(path).update(on_path=False)
        session.head, session.message_count, session.head_has_open_calls = to, 0, False
        session.head_fingerprint = fingerprints.START

    def _position_of(self, seq: int) -> Position:
        if seq <= self.session.trimmed_through:
            return Position(fingerprints.START)
        if seq not in self.positions:
            self.write()  # it may be among the rows that are not written yet
            self.positions[seq] = load_position(self.session, seq)
        return self.positions[seq]

    def _put_row(self, laid: RestoredEntry, *, position: Position, on_path: bool, moved: bool) -> DraftRow:
        message = Message(
            session=self.session,
            seq=laid.seq,
            parent_seq=laid.parent,
            on_path=on_path,
            moved_head=moved,
            body=laid.body,
            salt=laid.salt,
            digest=laid.digest,
            seal=laid.seal,
            fingerprint=self._print(laid, position),
            **laid.columns,
        )
        # What has no texts is neither searched nor does it ask or answer: a gap, for the projections.
        entry = laid.entry or Gap(at=laid.created_at)
        row = DraftRow(message, entry, Packed(laid.body or "", {}, laid.blobs), position)
        self.rows.append(row)
        self.calls += [(message, fields) for fields in laid.calls]
        return row

    def _print(self, laid: RestoredEntry, position: Position) -> bytes:
        if laid.entry is not None:
            return fingerprints.fingerprint(laid.entry, after=position.fingerprint, scope=self.scope)
        if laid.kind not in CONVERSATION:
            return position.fingerprint
        return fingerprints.of_nothing_known(self.session.pk, laid.seq)

    def _go_on(self, laid: RestoredEntry, row: DraftRow, *, moves: bool) -> None:
        seq, print_ = laid.seq, row.message.fingerprint
        if laid.entry is not None:
            self.positions[seq] = next_position(row.position, laid.entry, seq=seq, fingerprint=print_)
        elif laid.kind == ModelOutput.kind:
            calls = tuple((call["call_id"], call["name"]) for call in laid.calls)
            self.positions[seq] = Position(print_, calls, seq)
        elif laid.kind in CONVERSATION:
            self.positions[seq] = Position(print_)
        else:
            self.positions[seq] = replace(row.position, fingerprint=print_)
        if moves:
            advance(self.session, position=self.positions[seq], seq=seq, is_message=is_message(row.message))

    def _count(self, laid: RestoredEntry) -> None:
        session, columns = self.session, laid.columns
        session.input_tokens += columns.get("input_tokens", 0)
        session.output_tokens += columns.get("output_tokens", 0)
        if laid.entry is not None:
            session.error_count += projections.errors_in(laid.entry)
            session.tool_call_count += len(laid.entry.tool_requests) if isinstance(laid.entry, ModelOutput) else 0
            return
        session.tool_call_count += len(laid.calls)
        status, metadata = columns.get("status", ""), columns.get("metadata", {})
        session.error_count += projections.errors_left(kind=laid.kind, status=status, metadata=metadata)
