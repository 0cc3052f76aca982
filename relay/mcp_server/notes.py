"""Notes that programs leave: entries of one session for each key, apart from whatever was said anywhere else.

In the conversation that a note is about it would be one more message: the program that holds that conversation knows
nothing of it, and its next request would go on before it, on another branch.
"""

from __future__ import annotations

from history.access.permissions import Purpose, sessions_for
from history.entries import ModelInput, Text
from history.models import ApiKey, Session
from history.record import recorder
from history.record.recorder import Append

NOTE_CHARS = 20_000
CHANNEL = "note"
CLIENT = "MCP notes"


def keep_note(key: ApiKey, text: str, *, about: str = "") -> tuple[Session, int]:
    """The session of this key's notes, and the note's number in it."""
    session = _notes_of(key) or recorder.start_session(
        owner=key.owner, api_key=key, source=Session.Source.CHAT, client=CLIENT, title=f"Notes: {key.name}"
    )
    said = f"{text.strip()}\n\n(About session {about}.)" if about else text.strip()
    entry = ModelInput(channel=CHANNEL, parts=(Text(text=said),), metadata={"about": about} if about else {})
    return session, recorder.append_batch([Append(session.pk, entry, None)])[0].seq


def _notes_of(key: ApiKey) -> Session | None:
    own = sessions_for(key, Purpose.WRITE).filter(api_key=key, source=Session.Source.CHAT, client=CLIENT)
    return own.order_by("created_at").first()
