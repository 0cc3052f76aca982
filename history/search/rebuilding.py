"""Rebuilding of the search index from the entries."""

from collections.abc import Callable, Iterator

from django.db.models import Max, QuerySet

from history.db.transactions import writing
from history.models import Message, SearchRow, Session
from history.record.search_rows import rows_of
from history.record.selectors import entries_of

BATCH = 200
BATCH_CHARS = 4_000_000


def rebuild(session: Session | None = None, *, progress: Callable[[int], object] = lambda done: None) -> int:
    """Replace all search rows while others search and write. `progress` gets the number of messages so far."""
    done = 0
    for ids in _batches(session):
        with writing():
            done += _rebuild(ids)
        progress(done)
    return done


def _batches(session: Session | None) -> Iterator[list[int]]:
    """Ids of messages, oldest first: few at a time if their texts are long, to limit memory."""
    # Writers make the rows of later messages.
    newest = Message.objects.aggregate(newest=Max("pk"))["newest"] or 0
    messages: QuerySet[Message] = Message.objects.filter(pk__lte=newest, **{"session": session} if session else {})
    last = 0
    while sizes := list(messages.filter(pk__gt=last).order_by("pk").values_list("pk", "content_chars")[:BATCH]):
        total = 0
        batch: list[int] = []
        for pk, chars in sizes:
            total += chars
            if batch and total > BATCH_CHARS:
                break
            batch.append(pk)
        yield batch
        last = batch[-1]


def _rebuild(ids: list[int]) -> int:
    messages = list(Message.objects.select_for_update(of=("self",)).select_related("session").filter(pk__in=ids))
    SearchRow.objects.filter(message_id__in=ids).delete()
    rows = []
    for message, entry in zip(messages, entries_of(messages), strict=True):
        if message.body is not None:
            rows += rows_of(message, entry)
    SearchRow.objects.bulk_create(rows, batch_size=500)
    return len(messages)
