"""An export and what becomes of it, in a test: all lines of it, an empty record, and the record laid down again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.db import connection

from history.entries import (
    DebugLog,
    Gap,
    Media,
    ModelInput,
    NotebookSet,
    PlanSet,
    Summary,
    SystemInstructionSet,
    Text,
    ToolDefinition,
    ToolsOffered,
)
from history.formats import jsonl
from history.formats.reports import ImportItem
from history.models import ApiKey, Blob, DayTally, Exchange, Message, SearchRow, Session, ToolCall
from history.record import recorder
from project.accounts.models import User
from tests.factories import model_input, model_output, tool_request, tool_result, tool_results, without_guards


def rich_session(owner: User, **fields: Any) -> Session:
    """Branches, calls, an attachment, a long text, a notebook, a summary, notes beside the path."""
    session = recorder.start_session(owner=owner, **fields)
    picture = recorder.store_blob(b"\x89PNG picture", media_type="image/png")
    shown = Media(media_type="image/png", sha256=picture, name="p.png", size=12)
    recorder.append_many(
        session,
        [
            SystemInstructionSet(instruction="Be brief. " * 200),
            ToolsOffered(tools=(ToolDefinition(name="sys_monitor", description="d" * 1_500),)),
            NotebookSet(content="Ada likes tea."),
            PlanSet(plan="- [ ] Measure it"),
            ModelInput(parts=(Text(text="How warm is it? 温度"), shown)),
            model_output("", tool_request("a"), tool_request("b")),
            tool_results(tool_result("a", "x" * 70_000), tool_result("b", "no", status="failed", error="broken")),
            model_output("\0 warm \ud83d", status="interrupted"),
            Summary(first=4, last=6, summary="They spoke of the weather."),
        ],
        after=0,
    )
    recorder.append(session, DebugLog(category="net", message="slow"), after=session.head)
    recorder.edit(session, seq=4, entry=model_input("How cold is it?"))
    recorder.append(session, model_output("Cold."), after=session.head)
    recorder.append(session, model_input("beside"), after=3)
    recorder.move_head(session, to=7)
    recorder.append(session, Gap(reason="something"), after=session.head)
    return session


def everything(*, sections: bool = False) -> bytes:
    writer = jsonl.JsonlWriter()
    rows = Session.objects.select_related("owner", "api_key").order_by("pk")
    pieces = [writer.head(), *(line for session in rows for line in writer.session(session))]
    return b"".join([*pieces, *(writer.sections() if sections else ()), writer.end()])


def wipe() -> None:
    """Empty the record; users stay."""
    for model in (Message.blobs.through, Exchange.blobs.through):
        without_guards(model._default_manager.all())._raw_delete(connection.alias)
    Session.objects.update(parent=None, forked_from=None)
    for rows in (DayTally, SearchRow, ToolCall, Exchange, Message, Session, Blob, ApiKey):
        without_guards(rows._default_manager.all()).delete()


def restored(file: bytes | Iterable[bytes], **how: Any) -> list[ImportItem]:
    lines = file.splitlines(keepends=True) if isinstance(file, bytes) else file
    return [told for told in jsonl.restore(lines, **how) if told is not None]
