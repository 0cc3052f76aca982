"""HTML fragments that update an open chat page, rendered by the templates of the page.

Stored entries are rendered from the database. Only a running answer is rendered from `relay.live`. Each element names
its target with `hx-swap-oob`.
"""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any
from uuid import UUID

from django.db.models import QuerySet
from django.template.loader import render_to_string
from django.utils.safestring import SafeString
from django.utils.translation import get_language

from history.access.permissions import Purpose, find
from history.db.prepared import prepared
from history.entries import ModelOutput, Retracted
from history.models import Message, Session
from history.record import selectors
from history.record.paths import is_on_head_path, is_on_way, newest_descendant
from history.transcripts.page import Transcript, TranscriptEntry, TranscriptPosition, read_page
from relay.conversation.turns import is_unanswered
from relay.live.answer_html import AnswerCursor, Change
from relay.live.relayed_updates import has_open_call
from relay.models import QueuedMessage, Run
from relay.models.runs import stored_run
from relay.pages.panel import work_of
from relay.providers.error_advice import error_from, error_summary
from relay.providers.local import demo_state
from relay.runtime.locale import ViewerLocale

FURTHEST = 1_000  # how far a branch is followed in one step; a page that is further behind catches up with the next
# Attempts to read a consistent page while others write. Later entries are announced anyway.
MOST_LOOKS = 4
RUN_ID = "the-id-of-the-run"  # in parts that are rendered once


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one open page shows: the entries up to `shown` on the way to `leaf` (None: to the head)."""

    session_id: UUID
    user: Any
    reader: ViewerLocale
    shown: int = 0
    leaf: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUpdate:
    """How a page that shows `View` becomes one that shows everything."""

    html: str
    shown: int
    leaf: int | None
    run: Run | None  # that is being answered at the end of the page
    outcome: str = ""  # of the run that the page has followed, if it has ended
    has_answer: bool = False  # whether a program has got an answer


@dataclass(frozen=True, slots=True, kw_only=True)
class PageState:
    """What there was to show at one moment: the page, and the run whose answer follows it."""

    session: Session
    leaf: int | None
    tip: int
    run: Run | None
    page: Transcript
    is_elsewhere: bool


def catch_up(view: View, *, live: str = "", followed: str = "") -> PageUpdate:
    """Everything that was stored since. `live` is the id of the live answer on the page, which is removed."""
    found = _find_once(view)
    for _ in range(MOST_LOOKS - 1):
        # Repeat the queries if an entry was stored between them.
        if found.session.version == selectors.version_and_head.get(view.session_id)[0]:
            break
        found = _find_once(view)
    session, page, run = found.session, found.page, found.run
    rows = [row for row in page.rows if isinstance(row, TranscriptEntry)]
    with view.reader.reading():
        context = {"session": session, "user": view.user, "can_write": True, "run": run, "history_is_on": True}
        if found.is_elsewhere:
            html: str = render_to_string("history/_transcript.html", context | {"transcript": page})
        else:
            html = _render_undone_summaries(rows, context) + _rows(rows, context, shown=view.shown, live=live)
        context |= {"after": found.tip, "leaf": found.leaf, **state_at(session, found.tip, run)}
        context |= work_of(session, reader=view.user, leaf=found.leaf)
        html += _session_parts(context)
    outcome = outcome_of(followed) if followed and (run is None or str(run.pk) != followed) else ""
    # If another writer was faster each time, what was read is shown and must not be sent again.
    return PageUpdate(
        html=html,
        shown=max(found.tip, page.last),
        leaf=found.leaf,
        run=run,
        outcome=outcome,
        has_answer=session.source == Session.Source.RELAY
        and run is None
        and any(row.message.seq > view.shown and isinstance(row.entry, ModelOutput) for row in rows),
    )


def _session_parts(context: dict[str, Any]) -> str:
    """What surrounds the conversation.

    The parts that look the same in nearly all sessions are rendered once per language: templates took most of the CPU
    of an update.
    """
    run, language = context["run"], get_language()
    is_summarising = bool(run and run.summarising_at)
    parts: list[str] = [render_to_string("chat/live/_session_parts.html", context)]
    parts.append(_composer_actions(language, has_run=run is not None).replace(RUN_ID, str(run.pk) if run else ""))
    if context["queued"] or context["is_unanswered"]:
        parts.append(render_to_string("chat/_pending.html", context))
    else:
        parts.append(_constant_part("chat/_pending.html", language))
    if context["plan"] or context["tree"]:
        parts.append(render_to_string("chat/_agent_activity.html", context))
    else:
        parts.append(_constant_part("chat/_agent_activity.html", language))
    parts.append(_constant_part("chat/_summarising.html", language, is_summarising=is_summarising))
    parts.append(_constant_part("chat/_summarise.html", language, is_summarising=is_summarising))
    return "".join(parts)


@cache
def _composer_actions(language: str, *, has_run: bool) -> str:
    return render_to_string("chat/_composer_actions.html", {"run": {"pk": RUN_ID} if has_run else None})


@cache
def _constant_part(template: str, language: str, *, is_summarising: bool = False) -> str:
    return render_to_string(template, {"run": {"summarising_at": is_summarising}, "can_write": True})


def _find_once(view: View) -> PageState:
    session = selectors.stored_session.get(view.session_id)
    if session.owner_id == view.user.pk:
        session.owner = view.user
    leaf = _current_leaf(session, view.leaf)
    tip = session.head if leaf is None else leaf
    run = next((run for run in Run.objects.running_in(session.pk) if run.leaf == tip), None)
    # A page that shows nothing yet says so, in the place where the first entry belongs.
    is_elsewhere = not view.shown or not _is_on_path(session, view.shown, leaf)
    page = read_page(session, TranscriptPosition(after=None if is_elsewhere else view.shown, leaf=leaf))
    if page.newer:
        is_elsewhere, page = True, read_page(session, TranscriptPosition(leaf=leaf))
    return PageState(session=session, leaf=leaf, tip=tip, run=run, page=page, is_elsewhere=is_elsewhere)


def _current_leaf(session: Session, leaf: int | None) -> int | None:
    """A branch is followed to its end; one that has become the path is followed as the path."""
    if leaf is None or is_on_head_path(session.pk, leaf):
        return None
    return newest_descendant(session, leaf, steps=FURTHEST)


def _is_on_path(session: Session, seq: int, leaf: int | None) -> bool:
    """Whether what the page shows last is on the way to where it is going."""
    if leaf is None:
        return is_on_head_path(session.pk, seq)
    return is_on_way(session.pk, seq, to=leaf)


def outcome_of(run_id: str) -> str:
    """How a run has ended. One that only had to summarise has no answer."""
    run = stored_run.first(UUID(run_id))
    if run is None or run.outcome != Run.Outcome.DONE or _has_answered(run):
        return run.outcome if run else ""
    return "summarised" if run.leaf > run.origin else "not summarised"


def _has_answered(run: Run) -> bool:
    """Its last entry is the answer, unless a summary came after it."""
    place = run.leaf
    while place > run.origin:
        kind, place = _kind_and_parent.get(run.session_id, place)
        if kind == ModelOutput.kind:
            return True
    return False


@prepared
def _kind_and_parent(session_id: UUID, seq: int) -> QuerySet[Message, tuple[str, int]]:
    return Message.objects.at(session_id, seq).values_list("kind", "parent_seq")


def _render_undone_summaries(rows: Sequence[TranscriptEntry], context: dict[str, Any]) -> str:
    seqs = [row.entry.seq for row in rows if isinstance(row.entry, Retracted)]
    around = [row for seq in seqs for row in read_page(context["session"], TranscriptPosition(at=seq)).rows]
    return "".join(_row(row, context) for row in around if isinstance(row, TranscriptEntry) and row.message.seq in seqs)


def _rows(rows: Sequence[TranscriptEntry], context: dict[str, Any], *, shown: int, live: str) -> str:
    """What is on the page already is replaced where it stands (a call now has its result), the rest goes to the end."""
    html = "".join(_row(row, context) for row in rows if row.message.seq <= shown)
    if live:
        html += render_update("remove", id=live)
    fresh = [_row(row, context) for row in rows if row.message.seq > shown]
    return html + (render_update("append", rows=fresh) if fresh else "")


def _row(row: TranscriptEntry, context: dict[str, Any]) -> SafeString:
    return render_to_string(row.template, context | {"shown": row, "message": row.message, "entry": row.entry})


def state_at(session: Session, tip: int, run: Run | None) -> dict[str, Any]:
    """What surrounds the conversation that ends at `tip`, where `run` is answering: stop or send, what waits."""
    return {
        "run": run,
        "queued": QueuedMessage.objects.waiting_in(session.pk),
        "is_waited_for": run is None and has_open_call(session),
        "is_unanswered": is_unanswered(session, tip, run),
    }


def live_answer(answer: AnswerCursor, reader: ViewerLocale) -> str:
    """All of it, as the last thing in the conversation."""
    waiting = demo_state(answer.label) if not answer.parts else ""
    with reader.reading():
        context = {"answer": answer, "parts": list(answer.parts.values()), "demo_state": waiting}
        return render_to_string("chat/live/_answer.html", context)


def live_retry(run: str, kind: str, at: float, reader: ViewerLocale) -> str:
    """Why the provider is called again, and in how many seconds."""
    with reader.reading():
        what = error_summary(error_from({"kind": kind}, message=""))
        return render_update("retry", run=run, what=what, seconds=max(1, round(at - time.time())))


def live_change(answer: AnswerCursor, change: Change, reader: ViewerLocale) -> str:
    """What one frame changed; rendered once, or once for each language where it brings words of ours."""
    language = reader.language if change.is_translated else ""
    if language not in change.html:
        with reader.reading() if language else nullcontext():
            change.html[language] = "".join(
                render_to_string("chat/live/_new_part.html", {"answer": answer, "grown": update})
                if update.is_new and not update.is_text
                else update.html
                for update in change.updates
            )
    return change.html[language]


def notices(words: Sequence[str], reader: ViewerLocale, *, level: str = "") -> str:
    with reader.reading():
        return render_to_string("chat/_notices.html", {"notices": [{"level": level, "text": text} for text in words]})


def degraded(reader: ViewerLocale, *, is_degraded: bool) -> str:
    """A lasting notice while Redis is away."""
    with reader.reading():
        return render_to_string("chat/_degraded.html", {"is_degraded": is_degraded})


def sidebar_row(session_id: UUID, view: View) -> str:
    """One session of the list beside the chat; none where it is not there any more."""
    with view.reader.reading():
        session = find(view.user, session_id, Purpose.WRITE)
        context = {
            # What an agent opened for itself is not in the list.
            "session": session if session and not session.parent_id else None,
            "session_id": session_id,
            "is_answering": bool(Run.objects.sessions_running([session_id])),
            "is_current": session_id == view.session_id,
            "user": view.user,
        }
        return render_update("sidebar_row", **context)


def render_update(kind: str, **context: Any) -> SafeString:
    return render_to_string("chat/live/_update.html", {"update": kind, **context})
