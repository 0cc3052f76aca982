"""Full text search over everything that the person may see: earlier chats, relayed calls, imports."""

from datetime import tzinfo
from typing import Annotated, Literal
from uuid import UUID

from django.utils.translation import gettext_lazy as _

from history.access.reasons import readable_without_reason
from history.search import Hit, SessionQuery, search
from relay.tools.base import ToolContext, ToolError, read_time, tool, zone_of

MOST = 50
PAGES = 5


@tool(summary=_("Searches all sessions"))
def search_history(
    context: ToolContext,
    query: Annotated[str, 'Words that must all occur; "a phrase", pay*, -without, this OR that. May be empty.'],
    limit: Annotated[int, "Number of messages, at most 50."] = 10,
    role: Annotated[Literal["user", "assistant", "tool", "system"] | None, "Who said it."] = None,
    tool: Annotated[str | None, "Only messages with a call or a result of this tool."] = None,
    agent: Annotated[str | None, "Only messages to and from this agent."] = None,
    model: Annotated[str | None, "Only answers of this model."] = None,
    source: Annotated[Literal["chat", "relay", "import", "notebook"] | None, "Source of the session."] = None,
    session: Annotated[str | None, "Only the session with this id."] = None,
    has_error: Annotated[bool | None, "Only messages with an error, or only messages without."] = None,
    since: Annotated[str | None, "From this day or time: 2026-11-01 or 2026-11-01T14:00."] = None,
    until: Annotated[str | None, "Up to this day or time."] = None,
    this_conversation: Annotated[bool, "Also search the current conversation."] = False,
) -> str:
    """Search all messages of the user's sessions, newest first.

    Each hit has the id of its session and the number of the entry: read_session shows the entries around it.
    """
    zone = zone_of(context.user)
    try:
        only = UUID(session.strip()) if session else None
    except ValueError:
        raise ToolError("There is no such session.") from None
    names = {"role": role, "tool": tool, "agent": agent, "model": model, "source": source}
    filters = SessionQuery.parse(
        {name: value or None for name, value in names.items()}
        | {
            "session": only,
            "has_error": has_error,
            "since": read_time(since, zone=zone) if since else None,
            "until": read_time(until, zone=zone, is_end=True) if until else None,
        }
    )
    left_out = None if this_conversation or only else context.session_id
    hits, is_all = _found(context, query, filters, limit=max(1, min(limit, MOST)), left_out=left_out)
    if not hits:
        return "Nothing found." if is_all else "Nothing found among the newest messages. Narrow the search."
    rest = "" if is_all else "\n\nThere are more results. Narrow the search, or raise the limit."
    readable = readable_without_reason(context.user, [hit.session_id for hit in hits])
    texts = []
    for number, hit in enumerate(hits, 1):
        shut = "" if hit.session_id in readable else context.how_to_open
        texts.append(_shown(hit, number, zone, shut=shut))
    return "\n\n".join(texts) + rest


def _found(
    context: ToolContext, query: str, filters: SessionQuery, *, limit: int, left_out: UUID | None
) -> tuple[list[Hit], bool]:
    """Hits outside the session `left_out`, where every search and its results would be found again."""
    hits: list[Hit] = []
    before = None
    for _page in range(PAGES):
        results = search(context.user, query, filters=filters, before=before, limit=limit * 2)
        hits += [hit for hit in results.hits if hit.session_id != left_out]
        before = results.next_before
        if before is None or len(hits) > limit:
            break
    return hits[:limit], before is None and len(hits) <= limit


def _shown(hit: Hit, number: int, zone: tzinfo, *, shut: str) -> str:
    """`shut`: what has to be done before its text is shown."""
    text = " ".join(hit.snippet.text.split())
    before, after = "… " if hit.snippet.is_cut_before else "", " …" if hit.snippet.is_cut_after else ""
    where = f"session {hit.session_id}, entry {hit.seq}"
    who = hit.role if hit.on_path else f"{hit.role}, on another branch"
    head = f"{number}. {hit.title or 'Untitled'} ({hit.at.astimezone(zone):%Y-%m-%d %H:%M}, {who}; {where})"
    if shut:
        return f"{head}\n   (of another user: {shut})"
    return f"{head}\n   {before}{text}{after}"
