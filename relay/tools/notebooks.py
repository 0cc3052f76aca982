"""What an agent remembers of a person from one conversation to the next: a notebook for each person and agent.

A notebook is a session of its own (`source=notebook`), and its entries are its versions: each holds the whole text and
who wrote it, the person or the agent. Nothing is overwritten; to restore a version is to write it once more.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from difflib import ndiff
from typing import Any
from uuid import UUID

from django.contrib.auth import get_user_model
from django.db.models import OuterRef, Subquery

from history.db.transactions import writing
from history.entries import NotebookSet
from history.models import Message, Session
from history.record import recorder, selectors

MOST_CHARS = 20_000
MOST_VERSIONS = 200


class CannotWrite(Exception):
    """`code` says why: `changed` since its writer read it, or `too_long`."""

    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class Notebook:
    """`version` 0: nobody has written into it yet."""

    agent: str
    content: str = ""
    version: int = 0
    session_id: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """`changes` from the version before, line by line: ("+", …), ("-", …), and (" ", …) for what stayed."""

    number: int
    content: str
    author: str
    by_agent: bool
    at: datetime
    changes: tuple[tuple[str, str], ...]


def read(owner: Any, agent: str) -> Notebook:
    """The notebook as it is now."""
    return _newest(_session_of(owner, agent), agent)


def write(owner: Any, agent: str, content: str, *, seen: int, by_agent: bool = False) -> Notebook:
    """A new version, written by somebody who has `seen` that one; raises CannotWrite. The same text is none."""
    text = content.replace("\r\n", "\n").strip()
    if len(text) > MOST_CHARS:
        raise CannotWrite("too_long")
    with writing():
        # Of two who write the first version, one waits here and then finds the other's.
        get_user_model().objects.select_for_update(no_key=True).only("pk").get(pk=owner.pk)
        session = _session_of(owner, agent)
        now = _newest(session, agent)
        if now.version != seen:
            raise CannotWrite("changed")
        if text == now.content:
            return now
        session = session or recorder.start_session(
            owner=owner, source=Session.Source.NOTEBOOK, agent=agent, title=agent
        )
        author = agent if by_agent else owner.get_username()
        entry = NotebookSet(content=text, author=author, agent=agent if by_agent else "")
        seq = recorder.append(session, entry, after=session.head).seq
    return Notebook(agent=agent, content=text, version=seq, session_id=session.pk)


def versions(owner: Any, agent: str) -> list[Version]:
    """Newest first."""
    session = _session_of(owner, agent)
    rows = list(_versions_of(session).order_by("-seq")[: MOST_VERSIONS + 1]) if session else []
    texts = [_entry(row) for row in rows]
    told = []
    for place, (row, entry) in enumerate(zip(rows, texts, strict=True)):
        before = texts[place + 1].content if place + 1 < len(texts) else ""
        told.append(
            Version(
                number=row.seq,
                content=entry.content,
                author=entry.author,
                by_agent=bool(entry.agent),
                at=row.created_at,
                changes=_changes(before, entry.content),
            )
        )
    return told[:MOST_VERSIONS]


def contents(owner: Any) -> dict[str, str]:
    """What stands in each notebook of this person, by the agent, whether that one is still here or not."""
    sessions = selectors.sessions_owned_by(owner).filter(source=Session.Source.NOTEBOOK).exclude(agent="")
    newest = Message.objects.filter(session=OuterRef("session"), kind=NotebookSet.kind).order_by("-seq").values("seq")
    written = Message.objects.filter(session__in=sessions, kind=NotebookSet.kind, seq=Subquery(newest[:1]))
    # Of two notebooks the older one counts, as everywhere.
    rows = list(written.select_related("session").order_by("-session__created_at", "-session__pk"))
    texts = zip(rows, selectors.entries_of(rows), strict=True)
    return {row.session.agent: entry.content for row, entry in texts if isinstance(entry, NotebookSet)}


def _session_of(owner: Any, agent: str) -> Session | None:
    sessions = selectors.sessions_owned_by(owner).filter(source=Session.Source.NOTEBOOK, agent=agent)
    return sessions.order_by("created_at", "pk").first()


def _newest(session: Session | None, agent: str) -> Notebook:
    newest = _versions_of(session).last() if session else None
    if session is None or newest is None:
        return Notebook(agent=agent)
    return Notebook(agent=agent, content=_entry(newest).content, version=newest.seq, session_id=session.pk)


def _versions_of(session: Session) -> Any:
    return Message.objects.of(session).filter(kind=NotebookSet.kind).order_by("seq")


def _entry(row: Message) -> NotebookSet:
    entry = selectors.entries_of([row])[0]
    return entry if isinstance(entry, NotebookSet) else NotebookSet(content="")


def _changes(before: str, after: str) -> tuple[tuple[str, str], ...]:
    lines = ndiff(before.splitlines(), after.splitlines())
    return tuple((line[0], line[2:]) for line in lines if line[0] in "+- ")
