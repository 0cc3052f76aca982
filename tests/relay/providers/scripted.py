"""A provider for tests: it gives scripted answers in turn and records its calls.

    ScriptedProvider("Hello.", [TextPiece(part="1", text="Hal"), 0.1, Busy("too many")], lambda context, options: "…")

An answer is a text, a list of steps, or a function of context and options that gives one of these. A step is an event,
a text (a piece of one), a number of seconds to wait, an `asyncio.Event` to wait for, or an error to raise. An answer
without an `AnswerEnded` or an error of its own is ended: by `tool_use` if it calls tools. A list that ends with `CUT`
is not.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from history.answers.events import AnswerEnded, AnswerFailed, AnswerStarted, Event, TextPiece, ToolCallPiece
from history.context.values import Context
from history.dialects import DEFAULT_DIALECT, CallOptions
from relay.errors import Cut, error_of
from relay.providers.base import CallNotes, Model
from relay.providers.endpoints import Endpoint
from relay.providers.http import HttpProvider

CUT: Final = "\0cut"

Step = Event | str | float | asyncio.Event | Exception
Steps = str | Sequence[Step]
Answer = Steps | Callable[[Context, CallOptions], Steps]
Outcome = Literal["running", "ended", "failed", "closed"]


@dataclass(slots=True)
class ScriptedCall:
    """One call as it was made; `outcome` is "closed" if the caller left before the end."""

    context: Context
    options: CallOptions
    outcome: Outcome = "running"


class ScriptedProvider(HttpProvider):
    """After the last answer it repeats that one."""

    def __init__(
        self,
        *answers: Answer,
        name: str = "scripted",
        label: str = "Scripted",
        dialect: str = DEFAULT_DIALECT,
        models: Sequence[Model] = (Model(name="script", window=8192),),
        is_demo: bool = False,
    ) -> None:
        endpoint = Endpoint(
            name=name, label=label, dialect=dialect, base_url="", models=tuple(models), lists_models=False
        )
        super().__init__(endpoint)
        self.is_demo = is_demo
        self.answers = list(answers) or ["Hello."]
        self.calls: list[ScriptedCall] = []

    async def call(
        self, context: Context, options: CallOptions, *, notes: CallNotes | None = None
    ) -> AsyncGenerator[Event, None]:
        made = ScriptedCall(context, options)
        answer = self.answers[min(len(self.calls), len(self.answers) - 1)]
        self.calls.append(made)
        if notes is not None:
            notes.attempts += 1
        try:
            yield AnswerStarted(model=options.model, request_id=f"scripted-{len(self.calls)}", provider=self.name)
            for step in _whole(answer(context, options) if callable(answer) else answer):
                if (event := await self._play(step)) is not None:
                    yield event
            made.outcome = "ended"
        except (GeneratorExit, asyncio.CancelledError):
            made.outcome = "closed"
            raise
        except Exception:
            made.outcome = "failed"
            raise

    async def _play(self, step: Step) -> Event | None:
        match step:
            case Exception():
                raise step
            case AnswerFailed():
                raise error_of(step, provider=self.name)
            case asyncio.Event():
                await step.wait()
            case int() | float():
                await asyncio.sleep(step)
            case str() if step == CUT:
                raise Cut("the script stops in the middle of an answer", provider=self.name)
            case str():
                return TextPiece(part="text", text=step)
            case _:
                return step
        return None


def _whole(steps: Steps) -> list[Step]:
    whole: list[Step] = [steps] if isinstance(steps, str) else list(steps)
    if whole and (whole[-1] == CUT or isinstance(whole[-1], AnswerEnded | Exception | AnswerFailed)):
        return whole
    has_end = any(isinstance(step, AnswerEnded) for step in whole)
    calls = any(isinstance(step, ToolCallPiece) for step in whole)
    return whole if has_end else [*whole, AnswerEnded(reason="tool_use" if calls else "stop")]
