"""Format checks of Gemini generateContent requests."""

from collections.abc import Mapping

from history.dialects.gemini_generate.normalisation import to_camel_case
from history.dialects.json_access import items, obj, objs, string
from history.entries import JsonObject
from history.linting.walker import A_TEXT, LintWalk, shortened, weight_of

WITHOUT_SIGNATURES = ("gemini-1", "gemini-2", "gemma")  # models before the third generation do not ask for signatures


class GenerateWalk(LintWalk):
    dialect = "gemini-generate"

    def walk(self, body: JsonObject) -> None:
        body = obj(to_camel_case(body))
        value = body.get("contents")
        contents = items([value] if isinstance(value, str | Mapping) else value)
        self.needs(bool(contents), "no-messages", "contents")
        self.signs = not string(body.get("model")).removeprefix("models/").startswith(WITHOUT_SIGNATURES)
        written = [{"parts": [{"text": one}]} if isinstance(one, str) else one for one in contents]
        for place, content in self.each(written, "contents"):
            self.check_content(place, content)
        if self.role == "model":
            self.find("ending", f"contents[{len(written) - 1}]")
        for number, group in enumerate(items(body.get("tools"))):
            declared = obj(group).get("functionDeclarations")
            for place, function in self.each(declared, f"tools[{number}].functionDeclarations"):
                self.offer(function.get("name"), f"{place}.name")

    def check_content(self, place: str, content: JsonObject) -> None:
        role, before = content.get("role", "user"), self.role
        self.needs(role in ("user", "model"), "role", f"{place}.role", role=shortened(role))
        self.role = string(role)
        self.message += 1
        self.speaker = "model" if role == "model" else "user"
        value = content.get("parts")
        parts = [value] if isinstance(value, Mapping) else value
        self.needs(bool(items(parts)), "content", f"{place}.parts")
        for part_place, part in self.each(parts, f"{place}.parts"):
            self.check_part(part_place, part)
        calls = [part for part in objs(parts) if "functionCall" in part]
        if calls and role == "model":
            self.needs(before != "model", "call-turn", place)
            if self.signs and not string(calls[0].get("thoughtSignature")):
                self.find("unsigned", place, name=shortened(string(obj(calls[0].get("functionCall")).get("name"))))

    def check_part(self, place: str, part: JsonObject) -> None:
        if part.get("thought") is True:
            self.find("thought", place)
            self.content(place, weight=0)
        elif "text" in part:
            text = part["text"]
            if self.needs(isinstance(text, str), "malformed", f"{place}.text", what="text", wanted=A_TEXT):
                self.needs(bool(text) or "thoughtSignature" in part, "empty-text", place)
                self.content(place, weight=weight_of(text))
        elif "functionCall" in part:
            call = obj(part["functionCall"])
            name, arguments = string(call.get("name")), call.get("args", {})
            self.needs(isinstance(arguments, Mapping), "arguments", f"{place}.functionCall.args", name=shortened(name))
            if self.needs(self.speaker == "model", "calls-of-others", place):
                self.call(place, call_id=string(call.get("id")), name=name)
        elif "functionResponse" in part:
            response = obj(part["functionResponse"])
            is_object = isinstance(response.get("response", {}), Mapping)
            self.needs(is_object, "response", f"{place}.functionResponse.response")
            self.result(place, call_id=string(response.get("id")), name=string(response.get("name")))
        else:
            self.needs(bool(part), "empty-text", place)
            self.content(place, weight=2 if "inlineData" in part or "fileData" in part else 0)
