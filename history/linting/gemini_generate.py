"""Checks of the request format of Gemini generateContent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from history.dialects.gemini_generate.spelling import in_one_spelling
from history.dialects.json_access import items, obj, objs, string
from history.linting.walker import A_TEXT, LintWalk, shortened, weight_of

# Models before the third generation do not ask for signatures.
WITHOUT_SIGNATURES = ("gemini-1", "gemini-2", "gemma")


def walk(body: Mapping[str, Any]) -> LintWalk:
    walk, body = _Walk("gemini-generate"), in_one_spelling(body)
    given = body.get("contents")
    contents = [given] if isinstance(given, str | Mapping) else given
    walk.needs(bool(items(contents)), "no-messages", "contents")
    walk.signs = not string(body.get("model")).removeprefix("models/").startswith(WITHOUT_SIGNATURES)
    written = [{"parts": [{"text": one}]} if isinstance(one, str) else one for one in items(contents)]
    for place, content in walk.each(written, "contents"):
        walk.look(place, content)
    if walk.role == "model":
        walk.find("ending", f"contents[{len(written) - 1}]")
    for number, group in enumerate(items(body.get("tools"))):
        declared = obj(group).get("functionDeclarations")
        for place, function in walk.each(declared, f"tools[{number}].functionDeclarations"):
            walk.offer(function.get("name"), f"{place}.name")
    return walk


class _Walk(LintWalk):
    role = ""
    signs = True

    def look(self, place: str, content: Mapping[str, Any]) -> None:
        role = content.get("role", "user")
        self.needs(role in ("user", "model"), "role", f"{place}.role", role=shortened(role))
        before, self.role = self.role, string(role)
        self.message += 1
        self.speaker = "model" if role == "model" else "user"
        given = content.get("parts")
        parts = [given] if isinstance(given, Mapping) else given
        self.needs(bool(items(parts)), "content", f"{place}.parts")
        for part_place, part in self.each(parts, f"{place}.parts"):
            self.part(part_place, part)
        calls = [part for part in objs(parts) if "functionCall" in part]
        if calls and role == "model":
            self.call_turn(place, calls, before)

    def call_turn(self, place: str, calls: list[Mapping[str, Any]], before: str) -> None:
        self.needs(before != "model", "call-turn", place)
        if self.signs and not string(calls[0].get("thoughtSignature")):
            self.find("unsigned", place, name=shortened(string(obj(calls[0].get("functionCall")).get("name"))))

    def part(self, place: str, part: Mapping[str, Any]) -> None:
        if part.get("thought") is True:
            self.find("thought", place)
            self.say(place, weight=0)
        elif "text" in part:
            self.text(place, part)
        elif "functionCall" in part:
            self.function_call(place, obj(part["functionCall"]))
        elif "functionResponse" in part:
            self.response(place, obj(part["functionResponse"]))
        else:
            self.needs(bool(part), "empty-text", place)
            self.say(place, weight=2 if "inlineData" in part or "fileData" in part else 0)

    def text(self, place: str, part: Mapping[str, Any]) -> None:
        text = part["text"]
        if self.needs(isinstance(text, str), "malformed", f"{place}.text", what="text", wanted=A_TEXT):
            self.needs(bool(text) or "thoughtSignature" in part, "empty-text", place)
            self.say(place, weight=weight_of(text))

    def function_call(self, place: str, call: Mapping[str, Any]) -> None:
        name, arguments = string(call.get("name")), call.get("args", {})
        self.needs(isinstance(arguments, Mapping), "arguments", f"{place}.functionCall.args", name=shortened(name))
        if self.needs(self.speaker == "model", "calls-of-others", place):
            self.call(place, call_id=string(call.get("id")), name=name)

    def response(self, place: str, response: Mapping[str, Any]) -> None:
        told = response.get("response", {})
        self.needs(isinstance(told, Mapping), "response", f"{place}.functionResponse.response")
        self.result(place, call_id=string(response.get("id")), name=string(response.get("name")))
