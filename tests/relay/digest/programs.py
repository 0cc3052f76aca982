"""Programs that talk through the relay as the real ones do: the requests of `traffic/`, grown turn by turn.

Each keeps its conversation in its vendor's form and resends all of it, with the habits that make recognition hard:
cache markers that move, reminders that change, reasoning that comes back, instructions among the messages.
"""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from history.entries import ModelOutput, ToolRequest
from tests.history.dialects.samples import in_snake_case
from tests.relay.digest.relayed import Relay

TRAFFIC = Path(__file__).parent / "traffic"


def captured(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((TRAFFIC / f"{name}.json").read_text(encoding="utf-8"))
    return found


def prose(length: int) -> str:
    """An instruction of that many characters. Its words are ours: those of programs are theirs, and change."""
    return ("Please look at what follows and deal with it in the usual way. " * (length // 60 + 1))[:length].strip()


class Program:
    """`ask` says something (or only sends results), and takes the answer into the conversation."""

    dialect = ""
    fixture = ""

    def __init__(self, relay: Relay, **headers: str) -> None:
        request = captured(self.fixture)
        self.relay, self.path = relay, request["path"]
        self.headers: dict[str, str] = {**request["headers"], **headers}
        self.body: dict[str, Any] = request["body"]
        self.turns = 0
        self.clear()

    def clear(self) -> None:
        """The conversation without the captured first words."""

    def request(self) -> dict[str, Any]:
        return copy.deepcopy(self.body)

    def send(self, text: str = "", **how: Any) -> UUID:
        self.turns += 1
        if text:
            self.add_user_text(text)
        headers = {**self.headers, **how.pop("headers", {})}
        return self.relay.send(self.dialect, self.request(), headers, path=self.path, **how)

    def relay_call(self, text: str, output: ModelOutput, **how: Any) -> UUID:
        exchange = self.send(text, **how)
        self.relay.answer(exchange, output)
        self.add_answer(output)
        self.relay.digest()
        return exchange

    def add_user_text(self, text: str) -> None:
        raise NotImplementedError

    def add_answer(self, output: ModelOutput) -> None:
        raise NotImplementedError

    def find(self, **results: str) -> None:
        raise NotImplementedError


class ClaudeCode(Program):
    dialect, fixture = "anthropic-messages", "claude-code-latest-1"

    def clear(self) -> None:
        self.reminder, self.system = self.body["messages"][0]["content"][0], self.body["messages"][1]
        self.body["messages"] = []

    def request(self) -> dict[str, Any]:
        """The newest block has the cache marker, and the reminder of the day stands before the newest words."""
        body = copy.deepcopy(self.body)
        newest = body["messages"][-1]["content"]
        newest.insert(0, {"type": "text", "text": f"<system-reminder>\nTurn {self.turns}.\n</system-reminder>"})
        newest[-1]["cache_control"] = {"type": "ephemeral"}
        if body["messages"][-1]["role"] == "user" and newest[1].get("type") == "tool_result":
            newest.append(newest.pop(0))
        body["messages"].insert(1, copy.deepcopy(self.system))
        return body

    def add_user_text(self, text: str) -> None:
        self.body["messages"].append({"role": "user", "content": [{"type": "text", "text": text}]})

    def add_answer(self, output: ModelOutput) -> None:
        blocks: list[dict[str, Any]] = [{"type": "thinking", "thinking": "Hm.", "signature": "s1"}]
        if output.text:
            blocks.append({"type": "text", "text": output.text})
        for request in output.tool_requests:
            made = {"id": request.call_id, "name": request.name, "input": json.loads(request.arguments)}
            blocks.append({"type": "tool_use", **made})
        self.body["messages"].append({"role": "assistant", "content": blocks})

    def find(self, **results: str) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": name, "content": text} for name, text in results.items()]
        self.body["messages"].append({"role": "user", "content": blocks})

    def compact(self, summary: str) -> None:
        told = f"This session is being continued from a previous conversation that ran out of context. {summary}"
        self.body["messages"] = [{"role": "user", "content": [{"type": "text", "text": told}]}]

    @property
    def side_headers(self) -> dict[str, str]:
        return self.headers

    def title_request(self, text: str, *, field: str = "title") -> dict[str, Any]:
        """As releases 2.1.112 to 2.1.326 send it: three blocks of instruction, an empty list of tools, one field."""
        schema = {"type": "object", "properties": {field: {"type": "string"}}, "required": [field]}
        return {
            "model": "claude-haiku-4-5",
            "max_tokens": 32_000,
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.326.3c4; cc_entrypoint=cli;"},
                {"type": "text", "text": prose(57)},
                {"type": "text", "text": prose(3_059)},
            ],
            "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}],
            "tools": [],
            "metadata": self.body["metadata"],
            "output_config": {"format": {"type": "json_schema", "schema": {**schema, "additionalProperties": False}}},
            "stream": True,
        }

    def send_title(self, text: str, **how: Any) -> UUID:
        return self.relay.send(self.dialect, self.title_request(text, **how), self.headers)

    def ask_for_title(self, text: str, output: ModelOutput) -> UUID:
        return self.relay.relay_call(self.dialect, self.title_request(text), output, self.headers)

    def ask_aside(self, text: str, output: ModelOutput) -> UUID:
        """A question of the program's own after the conversation: behind the mark of what it will send again."""
        body = self.request()
        body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        body["messages"].append({"role": "user", "content": text})
        return self.relay.relay_call(self.dialect, body, output, self.headers)

    def ask_aside_with_results(self, text: str, output: ModelOutput, **results: str) -> UUID:
        """The same where the newest answer has called tools, as `/compact` of release 2.1.197 does: the conversation
        without the answer to their results, and the question in one message with them."""
        body = copy.deepcopy(self.body)
        while body["messages"][-1]["content"][-1].get("type") != "tool_use":
            body["messages"].pop()
        body["messages"][-1]["content"][-1]["cache_control"] = {"type": "ephemeral"}
        found = [{"type": "tool_result", "tool_use_id": name, "content": told} for name, told in results.items()]
        body["messages"].append({"role": "user", "content": [*found, {"type": "text", "text": text}]})
        return self.relay.relay_call(self.dialect, body, output, self.headers)


class Codex(Program):
    dialect, fixture = "openai-responses", "codex-1"

    def clear(self) -> None:
        self.body["input"] = self.body["input"][:-1]

    def add_user_text(self, text: str) -> None:
        content = [{"type": "input_text", "text": text}]
        self.body["input"].append({"type": "message", "id": f"msg_{self.turns}", "role": "user", "content": content})

    def add_answer(self, output: ModelOutput) -> None:
        items: list[dict[str, Any]] = [
            {"type": "reasoning", "id": f"rs_{self.turns}", "summary": [], "encrypted_content": "secret"}
        ]
        if output.text:
            content = [{"type": "output_text", "text": output.text, "annotations": []}]
            items.append({"type": "message", "id": f"out_{self.turns}", "role": "assistant", "content": content})
        for request in output.tool_requests:
            made = {"call_id": request.call_id, "name": request.name, "arguments": request.arguments}
            items.append({"type": "function_call", "id": f"fc_{request.call_id}", **made})
        self.body["input"] += items

    def find(self, **results: str) -> None:
        self.body["input"] += [
            {"type": "function_call_output", "call_id": name, "output": text} for name, text in results.items()
        ]


class GeminiCli(Program):
    dialect, fixture = "gemini-generate", "gemini-cli-2"

    def clear(self) -> None:
        self.context = self.body["contents"][0]["parts"][0]
        self.body["contents"] = []

    def add_user_text(self, text: str) -> None:
        parts = [{"text": text}] if self.body["contents"] else [self.context, {"text": text}]
        self.body["contents"].append({"role": "user", "parts": parts})

    def add_answer(self, output: ModelOutput) -> None:
        parts: list[dict[str, Any]] = [{"text": output.text}] if output.text else []
        for request in output.tool_requests:
            made = {"id": request.call_id, "name": request.name, "args": json.loads(request.arguments)}
            parts.append({"functionCall": made, "thoughtSignature": "c2ln"})
        self.body["contents"].append({"role": "model", "parts": parts})

    def find(self, **results: str) -> None:
        parts = [
            {"functionResponse": {"id": name, "name": "read_file", "response": {"output": text}}}
            for name, text in results.items()
        ]
        self.body["contents"].append({"role": "user", "parts": parts})

    def route(self, output: ModelOutput) -> UUID:
        """Which model is to answer? Asked before each turn, with the conversation so far."""
        router = captured("gemini-cli-1")
        body = {**router["body"], "contents": [*self.body["contents"], {"role": "user", "parts": [{"text": "?"}]}]}
        return self.relay.relay_call(self.dialect, body, output, router["headers"], path=router["path"])


class Chat(Program):
    """A plain SDK: the whole conversation each time, and no id at all."""

    dialect, fixture = "openai-chat", "sdk-python-2"

    def clear(self) -> None:
        self.body["messages"] = []

    def add_user_text(self, text: str) -> None:
        self.body["messages"].append({"role": "user", "content": text})

    def add_answer(self, output: ModelOutput) -> None:
        calls = [
            {"id": one.call_id, "type": "function", "function": {"name": one.name, "arguments": one.arguments}}
            for one in output.tool_requests
        ]
        message = {"role": "assistant", "content": output.text or None}
        self.body["messages"].append({**message, "tool_calls": calls} if calls else message)

    def find(self, **results: str) -> None:
        self.body["messages"] += [
            {"role": "tool", "tool_call_id": name, "content": text} for name, text in results.items()
        ]


class OpenCode(Chat):
    def __init__(self, relay: Relay, *, session: str, **headers: str) -> None:
        ids = {"x-session-id": session, "x-session-affinity": session, "user-agent": "opencode/1.4.2"}
        super().__init__(relay, **ids, **headers)
        self.body["messages"] = [{"role": "system", "content": prose(9_528)}]
        parameters = {"type": "object", "properties": {"path": {"type": "string"}}}
        self.body["tools"] = [{"type": "function", "function": {"name": "read_file", "parameters": parameters}}]

    def send_title(self, text: str) -> UUID:
        """As release 1.18 sends it: before the first question, with what is to be named in a message of its own."""
        told = [("system", prose(2_096)), ("user", prose(40)), ("user", text)]
        messages = [{"role": role, "content": content} for role, content in told]
        return self.relay.send(self.dialect, {"model": "m", "messages": messages, "stream": True}, self.headers)


class AnthropicSdk(ClaudeCode):
    """Anthropic's own SDK, used plainly."""

    fixture = "sdk-python-7"

    def clear(self) -> None:
        self.body["messages"] = []

    def request(self) -> dict[str, Any]:
        return copy.deepcopy(self.body)


class ResponsesSdk(Codex):
    fixture = "sdk-python-4"

    def clear(self) -> None:
        self.body["input"] = []


class GenAiSdk(GeminiCli):
    fixture = "sdk-python-10"

    def clear(self) -> None:
        super().clear()
        self.context = {"text": "<system-reminder>Be kind.</system-reminder>"}


class ChangingSpelling(GenAiSdk):
    """Each turn in the spelling that the turn before was not in."""

    def request(self) -> dict[str, Any]:
        body = super().request()
        return in_snake_case(body) if self.turns % 2 else body


class InPieces(Program):
    """A habit to be mixed in: a message for the text of an answer, and one for each of its calls."""

    def add_answer(self, output: ModelOutput) -> None:
        text = tuple(part for part in output.parts if not isinstance(part, ToolRequest))
        for parts in filter(None, [text, *((request,) for request in output.tool_requests)]):
            super().add_answer(replace(output, parts=parts))


class OneByOne(InPieces):
    """And the result of a call right behind it, before the next one."""

    def find(self, **results: str) -> None:
        name = next(name for name in ("messages", "input", "contents") if name in self.body)
        calls, self.body[name] = self.body[name][-len(results) :], self.body[name][: -len(results)]
        for asked, (call_id, text) in zip(calls, results.items(), strict=True):
            self.body[name].append(asked)
            super().find(**{call_id: text})


class ChatInPieces(InPieces, Chat):
    pass


class AnthropicInPieces(InPieces, AnthropicSdk):
    pass


class ChatOneByOne(OneByOne, Chat):
    pass
