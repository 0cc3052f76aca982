"""How the record holds up at size: pages, appends, search, contexts, and the memory of long work.

Each figure is a ratio: to the same thing in a small session, or to the same query written by hand.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.contrib.auth import get_user_model
from django.db import connection, connections
from django.utils import timezone

from bench.load import Loaded, Talk, vocabulary
from bench.measure import Line, Table, in_turns, memory_growth, p95_in_turns
from history import search
from history.access.permissions import Purpose, sessions_for
from history.context.rendering import render_context
from history.context.values import ContextOptions
from history.db.packing import unpack
from history.entries import ModelInput, Text
from history.models import Session
from history.record import recorder, selectors

PAGE_SQL = """
SELECT seq, parent_seq, kind, body FROM history_message WHERE session_id = %s AND on_path ORDER BY seq DESC LIMIT 20
"""
LIST_SQL = """
SELECT * FROM history_session
WHERE owner_id = %s AND state = 'open' AND (expires_at IS NULL OR expires_at > %s OR hold)
ORDER BY last_activity_at DESC, id DESC LIMIT 20
"""
FTS_SQL = """
SELECT i.rowid, m.seq, m.content FROM history_searchindex i JOIN history_message m ON m.id = i.rowid / 65536
WHERE history_searchindex MATCH %s ORDER BY i.rowid DESC LIMIT 20
"""
GIN_SQL = """
WITH hits AS MATERIALIZED (SELECT id FROM history_searchrow WHERE tokens @@ %s::tsquery LIMIT 2001)
SELECT id, (SELECT content FROM history_message WHERE id = hits.id / 65536) FROM hits ORDER BY id DESC LIMIT 20
"""
WALK_SQL = """
SELECT id, (SELECT content FROM history_message m WHERE m.id = r.id / 65536) FROM history_searchrow r
WHERE tokens @@ %s::tsquery ORDER BY id DESC LIMIT 20
"""


def measure(loaded: Loaded, table: Table, *, rounds: int) -> None:
    pages(loaded, table, rounds)
    lists(loaded, table, rounds)
    contexts(loaded, table, rounds)
    searches(loaded, table, rounds)
    appends(loaded, table, rounds)
    throughput(loaded, table)


# Reading.


def pages(loaded: Loaded, table: Table, rounds: int) -> None:
    def page(session: Session, limit: int = 20) -> Callable[[], object]:
        return lambda: selectors.entries_of(selectors.messages_of(session, limit=limit).messages)

    def by_hand() -> object:
        rows = _fetch(PAGE_SQL, [Session._meta.pk.get_db_prep_value(loaded.long.pk, connection)])
        return [unpack(body, {}) for _, _, _, body in rows]

    ten, few = in_turns(page(loaded.long, limit=10), page(loaded.short, limit=10), rounds=rounds)
    table.add(Line("newest ten entries: 10,000 messages against 10", ten / few, "×", 1.5))
    twenty, alike = in_turns(page(loaded.long), page(_longer(loaded)), rounds=rounds)
    table.add(Line("newest page of twenty: 10,000 messages against some 50", twenty / alike, "×", 1.5))
    ours, hand = in_turns(page(loaded.long), by_hand, rounds=rounds)
    table.add(Line("newest page against SQL by hand", ours / hand, "×", 3, note=f"{ours * 1e3:.2f} ms"))


def lists(loaded: Loaded, table: Table, rounds: int) -> None:
    def first_page(owner: Any) -> Callable[[], object]:
        return lambda: list(sessions_for(owner, Purpose.LIST)[:20])

    def by_hand() -> object:
        now = connection.ops.adapt_datetimefield_value(timezone.now())
        return list(Session.objects.raw(LIST_SQL, [loaded.large_owner.pk, now]))

    large, small = in_turns(first_page(loaded.large_owner), first_page(loaded.small_owner), rounds=rounds)
    table.add(Line("session list: owner of thousands against owner of twenty", large / small, "×", 1.5))
    ours, hand = in_turns(first_page(loaded.large_owner), by_hand, rounds=rounds)
    table.add(
        Line(
            "session list against SQL by hand, rows turned into sessions",
            ours / hand,
            "×",
            3,
            note=f"{ours * 1e3:.2f} ms",
        )
    )


def contexts(loaded: Loaded, table: Table, rounds: int) -> None:
    options = ContextOptions()

    def context(session: Session) -> Callable[[], object]:
        return lambda: render_context(selectors.snapshot(session, options=options), options)

    long, short = in_turns(context(loaded.long), context(loaded.short), rounds=rounds)
    table.add(Line("context of 10,000 messages against 10", long / short, "×", 1.5, note=f"{long * 1e3:.2f} ms"))


# Search.


def searches(loaded: Loaded, table: Table, rounds: int) -> None:
    english, chinese = _english_queries(rounds * 2), _chinese_queries(rounds * 2)
    staff = _staff()
    for name, queries in (("two English words", english), ("two Chinese characters", chinese)):
        for who, viewer, scope in (("staff", staff, ""), ("owner of 0.1 %", loaded.small_owner, "owner")):
            ours = [_search(viewer, query) for query in queries]
            bare = [_bare(query, loaded.small_owner.pk if scope else None) for query in queries]
            mine, engine = p95_in_turns(ours, bare)
            note = f"{mine * 1e3:.2f} ms against {engine * 1e3:.2f} ms"
            table.add(Line(f"search p95, {name}, {who}, against the bare engine", mine / engine, "×", 3, note=note))


def _search(viewer: Any, query: str) -> Callable[[], object]:
    return lambda: search.search(viewer, query)


def _bare(query: str, owner: int | None) -> Callable[[], object]:
    words = query.split() if query.isascii() else None
    scope = [f":o{owner}"] if owner else []
    if connection.vendor == "sqlite":
        terms = [f'"{word}"' for word in words] if words else [f'"{" ".join(query)}"']
        match = " AND ".join([*terms, *(f'"{name}"' for name in scope)])
        return lambda: _fetch(FTS_SQL, [match])
    terms = [f"'{word}'" for word in words] if words else ["(" + " <-> ".join(f"'{c}'" for c in query) + ")"]
    match = " & ".join([*terms, *(f"'{name}'" for name in scope)])

    def ask() -> object:
        found = _fetch(GIN_SQL, [match])
        return found if len(found) < 20 else _fetch(WALK_SQL, [match])

    return ask


def _english_queries(count: int) -> list[str]:
    chance, words = random.Random(1), vocabulary()
    return [f"{words[chance.randrange(40)]} {words[chance.randrange(4_000)]}" for _ in range(count)]


def _chinese_queries(count: int) -> list[str]:
    talk = Talk(seed=5)
    return [talk.chinese()[:2] for _ in range(count)]


def _staff() -> Any:
    return get_user_model().objects.create_superuser("bench-staff")


# Writing.


def appends(loaded: Loaded, table: Table, rounds: int) -> None:
    long = Session.objects.get(pk=loaded.long.pk)
    short = Session.objects.get(pk=loaded.short.pk)

    def append(session: Session) -> Callable[[], object]:
        return lambda: recorder.append(session, _user_message(), after=session.head)

    after_many, after_few = in_turns(append(long), append(short), rounds=rounds)
    note = f"{after_many * 1e3:.2f} ms"
    table.add(Line("append at 10,000 messages against 10", after_many / after_few, "×", 1.5, note=note))


def throughput(loaded: Loaded, table: Table) -> None:
    sqlite = connection.vendor == "sqlite"
    rate = _from_threads(16, 5.0, loaded.large_owner, batch=1)
    table.add(Line("appends by 16 threads, own transactions", rate, "/s", 400 if sqlite else None, at_least=True))
    rate = _from_threads(16, 5.0, loaded.large_owner, batch=64)
    table.add(Line("appends by 16 threads, append_many of 64", rate, "/s", 2_000 if sqlite else None, at_least=True))


def _from_threads(threads: int, lasting: float, owner: Any, *, batch: int) -> float:
    sessions = [recorder.start_session(owner=owner) for _ in range(threads)]
    end = time.perf_counter() + lasting
    written = [0] * threads

    def write(place: int) -> None:
        session = sessions[place]
        while time.perf_counter() < end:
            recorder.append_many(session, [_user_message() for _ in range(batch)], after=session.head)
            written[place] += batch
        connections.close_all()

    workers = [threading.Thread(target=write, args=(place,)) for place in range(threads)]
    begin = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return sum(written) / (time.perf_counter() - begin)


def _user_message() -> ModelInput:
    return ModelInput(parts=(Text(text="The build server takes twice as long since Monday. Can you look at it? 重试"),))


# Long work.


def verify_all(table: Table) -> None:
    from history import verification

    with memory_growth() as growth:
        begin = time.perf_counter()
        findings = list(verification.verify())
        taken = time.perf_counter() - begin
    entries = _count("history_message")
    table.add(Line("verify everything: findings", len(findings), "", 0, note=str(findings[:1]) if findings else ""))
    table.add(Line("verify everything: memory above the start", growth[0], "MiB", 64, note=f"{entries / taken:,.0f}/s"))


def purge_all(table: Table) -> None:
    from history import retention

    with connection.cursor() as cursor:
        cursor.execute("UPDATE history_session SET state = 'deleted', hidden_at = created_at")
    before = _count("history_message")
    settings.PARLEY_TRASH_HOURS = 0
    with memory_growth() as growth:
        begin = time.perf_counter()
        retention.purge(dry_run=False)
        taken = time.perf_counter() - begin
    left = sum(_count(name) for name in ("history_message", "history_searchrow", "history_toolcall", "history_session"))
    table.add(Line("purge everything: rows left", left, "", 0))
    table.add(Line("purge everything: memory above the start", growth[0], "MiB", 64, note=f"{before / taken:,.0f}/s"))


def _count(name: str) -> int:
    return int(_fetch(f"SELECT count(*) FROM {name}", [])[0][0])


def _fetch(sql: str, parameters: Sequence[Any]) -> list[Any]:
    with connection.cursor() as cursor:
        cursor.execute(sql, parameters)
        return list(cursor.fetchall())


def _longer(loaded: Loaded) -> Session:
    """A session whose newest page is as full as that of the long one."""
    found = Session.objects.filter(message_count__gte=20, message_count__lt=100).first()
    return found or loaded.long
