"""Tools of the MCP server: search, read and list the sessions of a key, and leave notes.

As in REST each tool needs a scope, `history.access.permissions` selects sessions, and others' texts need a reason.
"""

from dataclasses import replace
from datetime import tzinfo
from typing import Annotated, Literal

from history.access.key_cache import has_scope
from history.access.permissions import Purpose, find, sessions_for
from history.clients import EXAMPLE_CLIENT
from history.entries import ModelInput, Text
from history.errors import HistoryError
from history.models import ApiKey, Session
from history.record import recorder
from history.record.listing import ListCursor, list_sessions as listed
from history.record.recorder import Append
from history.search import SessionQuery, find_session_ids
from relay.tools.base import Tool, Toolbox, ToolContext, ToolError, read_time, tool, zone_of
from relay.tools.built_in import read_session as reading
from relay.tools.built_in.search_history import search_history

MOST = 50
NOTE_CHARS = 20_000
NOTES_CHANNEL, NOTES_CLIENT = "note", "MCP notes"
HOW_TO_OPEN = "give read_session a reason, which its owner can see"


def tools_for(key: ApiKey) -> Toolbox:
    return {tool.name: tool for tool in TOOLS if has_scope(key, SCOPES[tool.name])}


@tool()
def list_sessions(
    context: ToolContext,
    query: Annotated[str | None, "Only sessions with messages that match these words, as in search_history."] = None,
    source: Annotated[Literal["chat", "relay", "import", "notebook"] | None, "Source of the session."] = None,
    client: Annotated[str | None, f"Only sessions of this client, such as {EXAMPLE_CLIENT}."] = None,
    since: Annotated[str | None, "Last activity at this day or time or later: 2026-11-01 or 2026-11-01T14:00."] = None,
    until: Annotated[str | None, "Last activity up to this day or time."] = None,
    cursor: Annotated[str | None, "Cursor at the end of the previous list."] = None,
    limit: Annotated[int, "Number of sessions, at most 50."] = 20,
) -> str:
    """List earlier sessions, newest activity first: id, title, when, with which program and model."""
    zone = zone_of(context.user)
    filters = SessionQuery.parse(
        {
            "source": source,
            "client": client,
            "since": read_time(since, zone=zone) if since else None,
            "until": read_time(until, zone=zone, is_end=True) if until else None,
        }
    )
    sessions = filters.apply(sessions_for(context.user, Purpose.LIST))
    if query:
        sessions = sessions.filter(pk__in=find_session_ids(context.user, query)[0])
    try:
        before = ListCursor.read(cursor.strip()) if cursor else None
    except ValueError:
        raise ToolError("This cursor is not valid. Use the cursor at the end of a list.") from None
    page = listed(sessions, before=before, limit=max(1, min(limit, MOST)))
    lines = [_line(session, zone) for session in page.sessions]
    if page.next_before:
        lines.append(f"There are more: cursor={page.next_before}")
    return "\n".join(lines) or "No sessions match."


def _line(session: Session, zone: tzinfo) -> str:
    at = f"{session.last_activity_at.astimezone(zone):%Y-%m-%d %H:%M}"
    facts = [at, session.client or session.source, session.model, f"{session.message_count} messages"]
    return f"{session.pk} {session.title or 'Untitled'} ({', '.join(filter(None, facts))})"


@tool()
def read_session(
    context: ToolContext,
    session: Annotated[str, "The id of the session."],
    around: Annotated[int | None, "Show the entries around this number."] = None,
    before: Annotated[int | None, "Show the entries before this number."] = None,
    after: Annotated[int | None, "Show the entries after this number."] = None,
    limit: Annotated[int, "Number of entries, at most 100."] = 20,
    reason: Annotated[str | None, "Reason, if the session belongs to another user. Its owner sees it."] = None,
) -> str:
    """Read one session: its newest entries, or those around, before or after an entry."""
    found = reading.open_session(context, session.strip(), reason=reason or "")
    return reading.render_entries(context, found, around=around, before=before, after=after, limit=limit)


@tool()
def append_note(
    context: ToolContext,
    text: Annotated[str, "The note, in Markdown."],
    session: Annotated[str | None, "The id of the session that the note is about."] = None,
) -> str:
    """Leave a note for later sessions: a decision, a fact, the state of the work. search_history finds it later.

    Notes are stored in their own session. Other sessions are not changed.
    """
    if not text.strip() or len(text) > NOTE_CHARS:
        raise ToolError(f"A note has 1 to {NOTE_CHARS:,} characters.")
    if session and find(context.user, session.strip(), Purpose.LIST) is None:
        raise ToolError("There is no such session.")
    try:
        kept, seq = _append_note(context.user, text, about=session.strip() if session else "")
    except HistoryError as error:
        raise ToolError(f"The note was not stored: {error}.") from None
    return f"Stored as entry {seq} of session {kept.pk}."


def _append_note(key: ApiKey, text: str, *, about: str) -> tuple[Session, int]:
    """The session of this key's notes, and the number of the new entry.

    In the conversation that a note is about it would be one more message: the program that holds that conversation does
    not know it, and its next request would start another branch before it.
    """
    own = sessions_for(key, Purpose.WRITE).filter(api_key=key, source=Session.Source.CHAT, client=NOTES_CLIENT)
    session = own.order_by("created_at").first() or recorder.start_session(
        owner=key.owner, api_key=key, source=Session.Source.CHAT, client=NOTES_CLIENT, title=f"Notes: {key.name}"
    )
    body = f"{text.strip()}\n\n(About session {about}.)" if about else text.strip()
    entry = ModelInput(channel=NOTES_CHANNEL, parts=(Text(text=body),), metadata={"about": about} if about else {})
    return session, recorder.append_batch([Append(session.pk, entry, None)])[0].seq


def _without(original: Tool, *names: str) -> Tool:
    """The same tool without parameters that make sense only in a conversation."""
    properties = {name: schema for name, schema in original.parameters["properties"].items() if name not in names}
    return replace(original, parameters={**original.parameters, "properties": properties})


SCOPES = {"search_history": "read", "read_session": "read", "list_sessions": "read", "append_note": "write"}
TOOLS = (_without(search_history, "this_conversation"), read_session, list_sessions, append_note)
