"""One sample session in every export format."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from history import exchanges, recorder
from history.entries import Media, ModelInput, ModelOutput, Reasoning, Summary, SystemInstructionSet, Text, Usage
from history.exporting import Selection, begin
from history.formats.all_exporters import EXPORTERS
from history.models import Session
from project.accounts.models import User
from tests.snapshots.conftest import Snapshot
from tests.talk import answered, call, result, results, said

pytestmark = [pytest.mark.django_db, pytest.mark.any_database]

SESSION = UUID("11111111-2222-4333-8444-555555555555")
BEGUN = datetime(2025, 12, 31, 10, 0, tzinfo=UTC)
# Seals are made with random salts.
RANDOM = re.compile(r'("(?:seal|salt)": ?")[^"]+"')
UNFIXED_ID = re.compile(r"(?!11111111-2222)[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
# The exchange is stored with the time of the test.
UNFIXED_TIME = re.compile(r"(?!2025-12-31)20\d\d-\d\d-\d\dT[\d:.]+(?:Z|\+00:00)?")
STYLE = re.compile(r"<style>.*?</style>\n", re.DOTALL)
BLANK_LINES = re.compile(r"\n\s*\n")


def test_export_formats_and_file_names_are_as_recorded(ada: User, snapshot: Snapshot) -> None:
    session = sample(ada)
    formats = {
        name: {"media_type": one.media_type, "one_file": one.one_file, "file_name": one.name_of(session)}
        for name, one in EXPORTERS.items()
    }
    snapshot("export_formats.json", formats)


@pytest.mark.parametrize("name", EXPORTERS)
def test_an_export_of_the_sample_session_is_as_recorded(ada: User, snapshot: Snapshot, name: str) -> None:
    session = sample(ada)
    export = begin(ada, Selection(sessions=(session.pk,)), name)
    written = b"".join(export.pieces()).decode()
    notes = sorted(note.level for note in export.report.notes)
    snapshot(f"export_{name}{EXPORTERS[name].suffix}.txt", f"{_masked(written)}\n--- notes: {notes}\n")


def sample(owner: User) -> Session:
    """An instruction, an attachment, reasoning, two calls, a failed answer, a summary, and a branch beside the path."""
    session = recorder.start_session(
        owner=owner, id=SESSION, created_at=BEGUN, title="The build server", workspace="/home/ada/project", client="cli"
    )
    picture = recorder.store_blob(b"\x89PNG picture", media_type="image/png")
    shown = Media(media_type="image/png", sha256=picture, name="p.png", size=12)
    usage = Usage(input_tokens=12, output_tokens=7)
    entries: list[Any] = [
        SystemInstructionSet(instruction="Be brief.", at=_at(0)),
        ModelInput(parts=(Text(text="帮我查看 **CPU** & <memory>"), shown), at=_at(1)),
        ModelOutput(
            parts=(Reasoning(text="Two tools."), Text(text="Let me look."), call("a"), call("b")),
            model="model-1",
            usage=usage,
            at=_at(2),
        ),
        results(
            result("a", "CPU 使用率: 3.0%", duration=0.5, started_at=_at(3)),
            result("b", "", status="failed", error="broken", duration=0.25, started_at=_at(3)),
            at=_at(4),
        ),
        answered("CPU is at 3 %.", at=_at(5), usage=usage),
        said("And the disk?", at=_at(6), metadata={"from": "a phone"}),
        answered("It is", at=_at(7), status="failed", error="overloaded"),
        Summary(first=2, last=5, summary="They looked at the CPU.", at=_at(8)),
        said("Thank you.", at=_at(9)),
        answered("```sh\ndf -h\n```", at=_at(10)),
    ]
    recorder.append_many(session, entries, after=0)
    recorder.append(session, answered("Beside the path.", at=_at(11)), after=6)
    exchange = exchanges.open_exchange(session, owner=owner, after=10, provider="openai", model="model-1")
    exchanges.finish(exchange, None, end_reason="upstream_error", error="overloaded", status_code=529)
    return session


def _at(seconds: int) -> datetime:
    return BEGUN + timedelta(seconds=seconds)


def _masked(text: str) -> str:
    """The style sheet of the page and the blank lines of its template are left out."""
    text = UNFIXED_TIME.sub("<time>", UNFIXED_ID.sub("<id>", RANDOM.sub(r'\1…"', text)))
    return BLANK_LINES.sub("\n", STYLE.sub("", text)) if text.startswith("<!doctype") else text
