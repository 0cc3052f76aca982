"""A sample session whose id and times are fixed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from history.entries import Media, ModelInput, ModelOutput, Reasoning, Summary, SystemInstructionSet, Text, Usage
from history.models import Session
from history.record import exchanges, recorder
from project.accounts.models import User
from tests.factories import model_input, model_output, tool_request, tool_result, tool_results

SESSION = UUID("11111111-2222-4333-8444-555555555555")
BEGUN = datetime(2025, 12, 31, 10, 0, tzinfo=UTC)


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
            parts=(Reasoning(text="Two tools."), Text(text="Let me look."), tool_request("a"), tool_request("b")),
            model="model-1",
            usage=usage,
            at=_at(2),
        ),
        tool_results(
            tool_result("a", "CPU 使用率: 3.0%", duration=0.5, started_at=_at(3)),
            tool_result("b", "", status="failed", error="broken", duration=0.25, started_at=_at(3)),
            at=_at(4),
        ),
        model_output("CPU is at 3 %.", at=_at(5), usage=usage),
        model_input("And the disk?", at=_at(6), metadata={"from": "a phone"}),
        model_output("It is", at=_at(7), status="failed", error="overloaded"),
        Summary(first=2, last=5, summary="They looked at the CPU.", at=_at(8)),
        model_input("Thank you.", at=_at(9)),
        model_output("```sh\ndf -h\n```", at=_at(10)),
    ]
    recorder.append_many(session, entries, after=0)
    recorder.append(session, model_output("Beside the path.", at=_at(11)), after=6)
    exchange = exchanges.open_exchange(session, owner=owner, after=10, provider="openai", model="model-1")
    exchanges.finish(exchange, None, end_reason="upstream_error", error="overloaded", status_code=529)
    return session


def _at(seconds: int) -> datetime:
    return BEGUN + timedelta(seconds=seconds)
