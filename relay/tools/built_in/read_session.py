"""Tools that read a session as text, in parts: one of the user's sessions, or that of the calling agent."""

from collections.abc import Iterator
from datetime import tzinfo
from typing import Annotated

from django.utils.translation import gettext_lazy as _

from history.access.reasons import NotPermitted, ReasonNeeded, find_opened
from history.entries import Entry, Gap, ModelOutput, ToolResults
from history.models import Message, Session
from history.record.selectors import Page, messages_of
from history.transcripts.previews import entries_in_brief, preview
from relay.tools.base import OUTPUT_CHARS, ToolContext, ToolError, tool, zone_of

MOST = 100
LARGEST = 2**53
ARGUMENT_CHARS = 500


@tool(summary=_("Shows part of a session"))
def read_session(
    context: ToolContext,
    session: Annotated[str, "The id of the session."],
    around: Annotated[int | None, "Show the entries around this number."] = None,
    before: Annotated[int | None, "Show the entries before this number."] = None,
    after: Annotated[int | None, "Show the entries after this number."] = None,
    limit: Annotated[int, "Number of entries, at most 100."] = 20,
) -> str:
    """Read one of the user's sessions: its newest entries, or those around, before or after an entry."""
    found = open_session(context, session.strip())
    return render_entries(context, found, around=around, before=before, after=after, limit=limit)


def open_session(context: ToolContext, name: str, *, reason: str = "") -> Session:
    try:
        found = find_opened(context.user, name, reason=reason)
    except NotPermitted:
        raise ToolError("This session belongs to another user. You do not have permission to read it.") from None
    except ReasonNeeded as error:
        why = f" ({error})" if reason else ""
        raise ToolError(f"This session belongs to another user: {context.how_to_open}{why}.") from None
    if found is None:
        raise ToolError("There is no such session.")
    return found


def render_entries(
    context: ToolContext,
    session: Session,
    *,
    around: int | None = None,
    before: int | None = None,
    after: int | None = None,
    leaf: int | None = None,
    limit: int,
) -> str:
    """`leaf`: on the way to this entry, and nothing beyond it."""
    page = _page(session, _seq(around), _seq(before), _seq(after), leaf, limit=max(1, min(limit, MOST)))
    shown = [message for message in page.messages if not message.is_internal]
    chars = OUTPUT_CHARS * 9 // 10 // max(1, len(shown)) - 100
    zone = zone_of(context.user)
    pairs = zip(shown, entries_in_brief(shown), strict=True)
    texts = [_render_entry(message, entry, zone, chars) for message, entry in pairs]
    begun = session.created_at.astimezone(zone)
    head = f"{session.title or 'Untitled'} ({session.message_count} messages, started {begun:%Y-%m-%d %H:%M})"
    ways = []
    if page.messages and page.has_older:
        ways.append(f"There are older entries: before={page.messages[0].seq}")
    if page.messages and page.has_newer:
        ways.append(f"There are newer entries: after={page.messages[-1].seq}")
    return "\n\n".join([head, *texts, *ways])


def _page(
    session: Session, around: int | None, before: int | None, after: int | None, leaf: int | None, *, limit: int
) -> Page:
    if around is None:
        return messages_of(session, before=before, after=after, leaf=leaf, limit=limit)
    until = messages_of(session, before=around + 1, limit=limit - limit // 2)
    last = until.messages[-1].seq if until.messages else around
    since = messages_of(session, after=last, limit=max(1, limit // 2))
    return Page([*until.messages, *since.messages], until.has_older, since.has_newer)


def _seq(number: int | None) -> int | None:
    """Within the range of a database column."""
    return None if number is None else max(0, min(number, LARGEST))


def _render_entry(message: Message, entry: Entry, zone: tzinfo, chars: int) -> str:
    who = f"{message.role} ({message.model})" if message.model else message.role
    status = "" if message.status == Message.Status.COMPLETE else f", {message.status}"
    head = f"#{message.seq} {who}, {message.created_at.astimezone(zone):%Y-%m-%d %H:%M}{status}"
    return "\n".join([head, *_lines(entry, chars)])


def _lines(entry: Entry, chars: int) -> Iterator[str]:
    if isinstance(entry, ToolResults):
        for result in entry.results:
            text = _brief(result.text or result.error, chars // max(1, len(entry.results)))
            yield f"← {result.name} {result.status}: {text}"
        return
    if text := _brief(f"[{entry.text}]" if isinstance(entry, Gap) else entry.text, chars):
        yield text
    if isinstance(entry, ModelOutput):
        for request in entry.tool_requests:
            yield f"→ {request.name} {_brief(request.arguments, ARGUMENT_CHARS)}"


def _brief(text: str, chars: int) -> str:
    begun = preview(text, max(1, chars))
    if begun.bytes:
        return f"{begun.text} … ({begun.bytes:,} bytes in total)"
    return f"{begun.text} … ({begun.chars:,} characters in total)" if begun.chars else begun.text


@tool(is_for_agents=True, summary=_("Shows a called agent the conversation of its caller; included automatically"))
def read_caller(
    context: ToolContext,
    before: Annotated[int | None, "Show the entries before this number."] = None,
    limit: Annotated[int, "Number of entries, at most 100."] = 20,
) -> str:
    """Read the conversation of your calling agent, up to the call: its newest entries, or those before an entry."""
    mine = Session.objects.only("parent_id", "metadata").get(pk=context.session_id)
    if mine.parent_id is None:
        raise ToolError("No agent called you: you are talking to the user.")
    caller = open_session(context, str(mine.parent_id))
    called_at = mine.metadata.get("called_at")
    leaf = called_at if isinstance(called_at, int) else None
    return render_entries(context, caller, before=before, leaf=leaf, limit=limit)
