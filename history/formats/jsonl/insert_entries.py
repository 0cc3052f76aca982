"""Insertion of restored entries with their numbers, parents, times, salts and seals.

Head, path and calls follow the rules of the recorder, because the entries go into its draft. Only what the recorder
would decide (the number, the salt, the seal, what is redacted) comes from the file.
"""

from history.db.packing import Packed
from history.entries import CONVERSATION, LEAVES, Gap, HeadMoved, JsonDict
from history.formats.jsonl.reading import RestoredEntry
from history.models import Message, ToolCall
from history.models.append_only import writable
from history.record import fingerprints, projections, writer
from history.record.row_builder import (
    Draft,
    DraftRow,
    Position,
    advance,
    count_entry,
    is_message,
    load_position,
    next_position,
)


class EntryInserter(Draft):
    """A locked session into which entries are inserted, oldest first."""

    def __post_init__(self) -> None:
        session = self.session
        self.leaf = session.head
        self.scope = fingerprints.scope_of(api_key_id=session.api_key_id, owner_id=session.owner_id)
        self.positions: dict[int, Position] = {}
        self.calls: list[tuple[Message, JsonDict]] = []  # of entries without texts, to be written with them

    def insert(self, restored: RestoredEntry) -> None:
        session = self.session
        if restored.seq <= session.trimmed_through:
            position = Position(fingerprints.START)
            self._put_row(restored, position=position, on_path=True, moved=restored.moved)
            return
        is_move = restored.kind == HeadMoved.kind
        if is_move:
            self._move_head(restored.parent)
        position = self.position_of(restored.parent)
        is_leaf = restored.kind in LEAVES
        moves = not is_leaf and self._moves(restored)
        message = self._put_row(restored, position=position, on_path=moves, moved=moves or is_move)
        session.version, session.last_seal = restored.seq, restored.seal
        if is_leaf:
            return
        calls = [(call["call_id"], call["name"]) for call in restored.calls]
        calls += projections.calls_in(restored.entry) if restored.entry is not None else []
        self.positions[restored.seq] = next_position(position, message, calls=calls)
        if moves:
            position = self.positions[restored.seq]
            advance(session, position=position, seq=restored.seq, is_message=is_message(message))

    def write(self) -> None:
        """Write the rows so far, and the calls whose texts were dropped."""
        writer.flush([self])
        self.write_calls()

    def write_calls(self) -> None:
        writer.insert_calls([ToolCall(session=self.session, message=message, **call) for message, call in self.calls])
        self.calls.clear()

    def close(self) -> None:
        """Mark whether the entries before the anchor of a trim are on the path: that is known only at the end."""
        session = self.session
        if not session.trimmed_through:
            return
        entries = Message.objects.of(session)
        path = entries.filter(on_path=True, seq__gt=session.trimmed_through).order_by("seq")
        first = path.values_list("parent_seq", flat=True).first() or 0
        is_anchored = 0 < (first or session.head) <= session.trimmed_through
        wrong = entries.filter(seq__lte=session.trimmed_through).exclude(on_path=is_anchored)
        writable(wrong).update(on_path=is_anchored)

    def position_of(self, seq: int) -> Position:
        if seq <= self.session.trimmed_through:
            return Position(fingerprints.START)
        if seq not in self.positions:
            self.write()  # it may be among the rows that are not written yet
            self.positions[seq] = load_position(self.session, seq)
        return self.positions[seq]

    def _moves(self, restored: RestoredEntry) -> bool:
        session = self.session
        if session.trimmed_through and session.head == 0 and restored.parent <= session.trimmed_through:
            return restored.moved  # only the entry knows where the head was before the first entry that is left
        return restored.parent == session.head

    def _move_head(self, to: int) -> None:
        self.write()
        session = self.session
        if not 0 < to <= session.trimmed_through:
            writer.move_head(session, to=to)
            return
        path = Message.objects.on_path(session).filter(seq__gt=session.trimmed_through)
        writable(path).update(on_path=False)
        session.head, session.message_count, session.head_has_open_calls = to, 0, False
        session.head_fingerprint = fingerprints.START

    def _put_row(self, restored: RestoredEntry, *, position: Position, on_path: bool, moved: bool) -> Message:
        if restored.entry is not None:
            fingerprint = fingerprints.fingerprint(restored.entry, after=position.fingerprint, scope=self.scope)
        elif restored.kind in CONVERSATION:
            fingerprint = fingerprints.of_nothing_known(self.session.pk, restored.seq)
        else:
            fingerprint = position.fingerprint
        message = Message(
            session=self.session,
            seq=restored.seq,
            parent_seq=restored.parent,
            on_path=on_path,
            moved_head=moved,
            body=restored.body,
            salt=restored.salt,
            digest=restored.digest,
            seal=restored.seal,
            fingerprint=fingerprint,
            **{**restored.columns, "created_at": restored.created_at},
        )
        # An entry without texts is neither searched nor does it call or answer: a gap, for the projections.
        entry = restored.entry or Gap(at=restored.created_at)
        self.rows.append(DraftRow(message, entry, Packed(restored.body or "", {}, restored.blobs), position))
        self.calls += [(message, call) for call in restored.calls]
        count_entry(self.session, message, restored.entry)
        self.session.tool_call_count += len(restored.calls)
        return message
