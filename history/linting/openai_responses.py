"""Checks of the request format of OpenAI Responses. What the model says in a row counts as one answer."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from history.dialects.json_access import items, obj, objs, string
from history.dialects.openai_responses.replies import call_of
from history.linting.openai_chat import check_arguments
from history.linting.walker import A_LIST, A_TEXT, LintWalk, Speaker, shortened, weight_of

ROLES = ("system", "developer", "user", "assistant")
INPUT_PARTS = ("input_text", "input_image", "input_file", "input_audio", "text")
OUTPUT_PARTS = ("output_text", "refusal", "input_text", "text")
OTHER_ITEMS = ("item_reference", "compaction", "additional_tools", "message")
ID_LIMIT = 64


def walk(body: Mapping[str, Any]) -> LintWalk:
    walk = _Walk("openai-responses")
    walk.needs(bool(string(body.get("model"))), "no-model", "model")
    chains = [name for name in ("previous_response_id", "conversation", "prompt") if body.get(name)]
    walk.goes_on = bool(chains)
    walk.needs(bool(body.get("input") or chains), "no-messages", "input")
    if body.get("previous_response_id") and body.get("conversation"):
        walk.find("two-chains", "conversation")
    given = body.get("input")
    walk.stores = body.get("store") is not False
    if isinstance(given, str):
        walk.say("input", weight=weight_of(given))
    elif walk.needs(given is None or isinstance(given, list), "malformed", "input", what="input", wanted=A_LIST):
        walk.look_at_all(given)
    for number, tool in enumerate(items(body.get("tools"))):
        if obj(tool).get("type") == "function":
            walk.offer(obj(tool).get("name"), f"tools[{number}].name")
    return walk


class _Walk(LintWalk):
    goes_on = False
    stores = True

    def __init__(self, dialect: str) -> None:
        super().__init__(dialect)
        self.called: set[str] = set()

    def look_at_all(self, given: Any) -> None:
        located = list(self.each(given, "input"))
        for place, item in located:
            self.look(place, item)
        nothing: tuple[str, Mapping[str, Any]] = ("", {})
        for (place, item), (_, after) in pairwise([*located, nothing]):
            if item.get("type") == "reasoning":
                self.needs(_is_answer(after), "reasoning-alone", place)
                self.reasoning(place, item)
            elif item.get("type") == "function_call" and after.get("role") == "assistant":
                self.find("calls-last", place)

    def reasoning(self, place: str, item: Mapping[str, Any]) -> None:
        if not item.get("encrypted_content"):
            self.find("reasoning-by-id" if self.stores and item.get("id") else "reasoning-kept", place)

    def look(self, place: str, item: Mapping[str, Any]) -> None:
        kind = string(item.get("type")) or ("message" if "role" in item else "")
        if kind == "message":
            self.one_message(place, item)
        elif kind == "reasoning":
            self.turn("model")
            self.say(place, weight=0)
        elif call := call_of(item):
            self.one_call(place, item, *call[:2])
        elif kind.endswith("_output") and "output" in item:
            self.output(place, item)
        else:
            self.needs(kind in OTHER_ITEMS, "item-type", place, type=shortened(kind or "?"))
            self.turn("model")
            self.say(place, weight=0)

    def turn(self, speaker: Speaker) -> None:
        """Only what the model says goes on as one message."""
        if speaker != "model" or self.speaker != "model":
            self.message += 1
        self.speaker = speaker

    def one_message(self, place: str, item: Mapping[str, Any]) -> None:
        role, content = string(item.get("role")), item.get("content")
        self.needs(role in ROLES, "role", f"{place}.role", role=shortened(item.get("role")))
        self.turn("model" if role == "assistant" else "system" if role in ("system", "developer") else "user")
        self.needs(isinstance(content, str) or bool(objs(content)), "content", f"{place}.content")
        if isinstance(content, str):
            self.text(content, f"{place}.content")
            return
        allowed = OUTPUT_PARTS if role == "assistant" else INPUT_PARTS
        for part_place, part in self.each(content, f"{place}.content"):
            kind = string(part.get("type"))
            if not self.needs(kind in allowed, "part-type", part_place, role=role or "?", type=shortened(kind or "?")):
                self.say(part_place, weight=0)
            elif kind in ("input_text", "output_text", "text"):
                self.text(part.get("text"), f"{part_place}.text")
            else:
                self.say(part_place)

    def text(self, text: Any, place: str) -> None:
        if self.needs(isinstance(text, str), "malformed", place, what="text", wanted=A_TEXT):
            self.needs(bool(text), "empty-text", place)
            self.say(place, weight=weight_of(text))

    def one_call(self, place: str, item: Mapping[str, Any], call_id: str, name: str) -> None:
        self.turn("model")
        self.needs(bool(string(item.get("call_id"))), "no-id", f"{place}.call_id")
        self.needs(len(call_id) <= ID_LIMIT, "long-id", f"{place}.call_id", id=shortened(call_id))
        if item.get("type") == "function_call":
            check_arguments(self, item.get("arguments"), name, f"{place}.arguments")
        self.called.add(call_id)
        self.call(place, call_id=call_id, name=name)

    def output(self, place: str, item: Mapping[str, Any]) -> None:
        """Calls that OpenAI has kept are not here to be answered."""
        self.turn("user")
        call_id = string(item.get("call_id"))
        self.needs(bool(call_id), "no-id", f"{place}.call_id")
        if not self.goes_on or call_id in self.called:
            self.result(place, call_id=call_id)
        else:
            self.say(place)


def _is_answer(item: Mapping[str, Any]) -> bool:
    return item.get("type") == "reasoning" or item.get("role") == "assistant" or call_of(item) is not None
