"""Format checks of OpenAI Chat Completions and OpenAI Responses requests."""

from itertools import pairwise

from history.dialects.json_access import items, obj, objs, string
from history.dialects.openai_responses.reply_reader import call_of
from history.dialects.tools import parse_arguments
from history.entries import JsonObject
from history.linting.walker import A_LIST, LintWalk, Speaker, shortened, speaker_of, weight_of

CHAT_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
CHAT_PARTS = {"user": ("text", "image_url", "input_audio", "file"), "assistant": ("text", "refusal")}

RESPONSES_ROLES = ("system", "developer", "user", "assistant")
INPUT_PARTS = ("input_text", "input_image", "input_file", "input_audio", "text")
OUTPUT_PARTS = ("output_text", "refusal", "input_text", "text")
OTHER_ITEMS = ("item_reference", "compaction", "additional_tools", "message")


class _OpenAiWalk(LintWalk):
    id_limit: int

    def check_call(self, place: str, *, value: object, call_id: str) -> None:
        self.needs(bool(string(value)), "no-id", place)
        self.needs(len(call_id) <= self.id_limit, "long-id", place, id=shortened(call_id))

    def check_arguments(self, arguments: object, name: str, place: str) -> None:
        """OpenAI requires a text. Its content is for the tool to parse."""
        if self.needs(isinstance(arguments, str), "arguments", place, name=shortened(name)):
            is_json = parse_arguments(str(arguments) or "{}") is not None
            self.needs(is_json, "arguments-json", place, name=shortened(name))


class ChatWalk(_OpenAiWalk):
    dialect = "openai-chat"
    id_limit = 40

    def walk(self, body: JsonObject) -> None:
        self.check_messages(body)
        self.needs("stream_options" not in body or body.get("stream") is True, "stream-options", "stream_options")
        for place, message in self.each(body.get("messages"), "messages"):
            self.check_message(place, message)
        for number, tool in enumerate(items(body.get("tools"))):
            if obj(tool).get("type", "function") == "function":
                self.offer(obj(obj(tool).get("function")).get("name"), f"tools[{number}].function.name")

    def check_message(self, place: str, message: JsonObject) -> None:
        role, before = string(message.get("role")), self.role
        self.needs(role in CHAT_ROLES, "role", f"{place}.role", role=shortened(message.get("role")))
        if role == before and role in ("user", "assistant"):
            self.find("turns", place)
        if role in ("system", "developer") and before not in ("", "system", "developer"):
            self.find("late-system", place)
        self.begin_message(role)
        if role in ("tool", "function"):
            self.check_tool_message(place, message)
        else:
            self.check_content(place, message)
            self.check_calls(place, message)

    def check_content(self, place: str, message: JsonObject) -> None:
        content, where = message.get("content"), f"{place}.content"
        if isinstance(content, str):
            self.text(content, where)
        elif isinstance(content, list) and content:
            allowed = CHAT_PARTS.get(self.role, ("text",))
            for part_place, part in self.each(content, where):
                kind = part.get("type")
                if not self.needs(kind in allowed, "part-type", part_place, role=self.role, type=shortened(kind)):
                    self.content(part_place, weight=0)
                elif kind in ("text", "refusal"):
                    self.text(part.get(kind), f"{part_place}.{kind}")
                else:
                    self.content(part_place)
        else:
            self.needs(bool(message.get("tool_calls") or message.get("function_call")), "content", where)
        if message.get("reasoning_content") or message.get("reasoning"):
            self.find("reasoning", place)
            self.content(place, weight=0)

    def check_calls(self, place: str, message: JsonObject) -> None:
        calls = message.get("tool_calls")
        if calls is not None and self.role != "assistant":
            self.find("calls-of-others", f"{place}.tool_calls")
        elif self.needs(calls is None or isinstance(calls, list), "malformed", place, what="tool_calls", wanted=A_LIST):
            for call_place, call in self.each(calls, f"{place}.tool_calls"):
                function = obj(call.get("function")) or obj(call.get("custom"))
                name, call_id = string(function.get("name")), string(call.get("id"))
                self.check_call(f"{call_place}.id", value=call_id, call_id=call_id)
                if "custom" not in call:
                    self.check_arguments(function.get("arguments"), name, f"{call_place}.function.arguments")
                self.call(call_place, call_id=call_id, name=name)

    def check_tool_message(self, place: str, message: JsonObject) -> None:
        content, call_id = message.get("content"), string(message.get("tool_call_id"))
        self.needs(bool(call_id) or self.role == "function", "no-id", f"{place}.tool_call_id")
        self.needs(isinstance(content, str) or bool(objs(content)), "content", f"{place}.content")
        for number, part in enumerate(objs(content)):
            self.needs(part.get("type") == "text", "media-in-result", f"{place}.content[{number}]")
        self.result(place, call_id=call_id, name=string(message.get("name")))


class ResponsesWalk(_OpenAiWalk):
    """What the model says in a row counts as one answer."""

    dialect = "openai-responses"
    id_limit = 64

    def walk(self, body: JsonObject) -> None:
        self.called: set[str] = set()
        self.needs(bool(string(body.get("model"))), "no-model", "model")
        self.is_continued = any(body.get(name) for name in ("previous_response_id", "conversation", "prompt"))
        self.stores = body.get("store") is not False
        value = body.get("input")
        self.needs(bool(value or self.is_continued), "no-messages", "input")
        if body.get("previous_response_id") and body.get("conversation"):
            self.find("two-chains", "conversation")
        if isinstance(value, str):
            self.content("input", weight=weight_of(value))
        elif self.needs(value is None or isinstance(value, list), "malformed", "input", what="input", wanted=A_LIST):
            self.check_items(value)
        for number, tool in enumerate(items(body.get("tools"))):
            if obj(tool).get("type") == "function":
                self.offer(obj(tool).get("name"), f"tools[{number}].name")

    def check_items(self, value: object) -> None:
        located = list(self.each(value, "input"))
        for place, item in located:
            self.check_item(place, item)
        for (place, item), (_, after) in pairwise([*located, ("", {})]):
            if item.get("type") == "reasoning":
                self.needs(_is_answer(after), "reasoning-alone", place)
                if not item.get("encrypted_content"):
                    self.find("reasoning-by-id" if self.stores and item.get("id") else "reasoning-kept", place)
            elif item.get("type") == "function_call" and after.get("role") == "assistant":
                self.find("calls-last", place)

    def check_item(self, place: str, item: JsonObject) -> None:
        kind = string(item.get("type")) or ("message" if "role" in item else "")
        if kind == "message":
            self.check_message(place, item)
        elif call := call_of(item):
            call_id, name = call[:2]
            self.begin_turn("model")
            self.check_call(f"{place}.call_id", value=item.get("call_id"), call_id=call_id)
            if kind == "function_call":
                self.check_arguments(item.get("arguments"), name, f"{place}.arguments")
            self.called.add(call_id)
            self.call(place, call_id=call_id, name=name)
        elif kind.endswith("_output") and "output" in item:
            self.check_output(place, item)
        else:
            self.needs(kind in ("reasoning", *OTHER_ITEMS), "item-type", place, type=shortened(kind or "?"))
            self.begin_turn("model")
            self.content(place, weight=0)

    def begin_turn(self, speaker: Speaker) -> None:
        """Only what the model says continues the message before it."""
        if speaker != "model" or self.speaker != "model":
            self.message += 1
        self.speaker = speaker

    def check_message(self, place: str, item: JsonObject) -> None:
        role, content = string(item.get("role")), item.get("content")
        self.needs(role in RESPONSES_ROLES, "role", f"{place}.role", role=shortened(item.get("role")))
        self.begin_turn(speaker_of(role))
        self.needs(isinstance(content, str) or bool(objs(content)), "content", f"{place}.content")
        if isinstance(content, str):
            self.text(content, f"{place}.content")
            return
        allowed = OUTPUT_PARTS if role == "assistant" else INPUT_PARTS
        for part_place, part in self.each(content, f"{place}.content"):
            kind = string(part.get("type"))
            if not self.needs(kind in allowed, "part-type", part_place, role=role or "?", type=shortened(kind or "?")):
                self.content(part_place, weight=0)
            elif kind in ("input_text", "output_text", "text"):
                self.text(part.get("text"), f"{part_place}.text")
            else:
                self.content(part_place)

    def check_output(self, place: str, item: JsonObject) -> None:
        """The calls of a stored conversation are at OpenAI and not in the request."""
        self.begin_turn("user")
        call_id = string(item.get("call_id"))
        self.needs(bool(call_id), "no-id", f"{place}.call_id")
        if not self.is_continued or call_id in self.called:
            self.result(place, call_id=call_id)
        else:
            self.content(place)


def _is_answer(item: JsonObject) -> bool:
    return item.get("type") == "reasoning" or item.get("role") == "assistant" or call_of(item) is not None
