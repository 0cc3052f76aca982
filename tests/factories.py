"""Small words for tests: what people and models say."""

from __future__ import annotations

from typing import Any

from history.entries import ModelInput, ModelOutput, Text, ToolRequest, ToolResult, ToolResults
from history.models import Session
from history.record import recorder


def model_input(text: str, **fields: Any) -> ModelInput:
    return ModelInput(parts=(Text(text=text),), **fields)


def model_output(text: str = "", *calls: ToolRequest, **fields: Any) -> ModelOutput:
    parts = (Text(text=text),) if text else ()
    return ModelOutput(parts=(*parts, *calls), model=fields.pop("model", "model-1"), **fields)


def tool_request(call_id: str, name: str = "sys_monitor", arguments: str = '{"metric": "cpu"}') -> ToolRequest:
    return ToolRequest(call_id=call_id, name=name, arguments=arguments)


def tool_result(call_id: str, text: str = "3 %", name: str = "sys_monitor", **fields: Any) -> ToolResult:
    return ToolResult(call_id=call_id, name=name, parts=(Text(text=text),), **fields)


def tool_results(*outcomes: ToolResult, **fields: Any) -> ToolResults:
    return ToolResults(results=outcomes, **fields)


def create_chat(owner: Any, *texts: str, **fields: Any) -> Session:
    """A session in which the texts were said in turns: a person, a model, a person …"""
    session = recorder.start_session(owner=owner, **fields)
    entries = [model_input(text) if place % 2 == 0 else model_output(text) for place, text in enumerate(texts)]
    if entries:
        recorder.append_many(session, entries, after=0)
    return session
