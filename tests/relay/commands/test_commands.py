"""Slash commands: parsing, usage and help."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from hypothesis import given, strategies as st

from relay.commands import BadCommand, Command, help_text, parse, suggestions, unescape_slashes, words_of
from relay.tools.base import Toolbox, ToolContext, all_tools, check_arguments, tool


@tool()
def translate(context: ToolContext, text: str, into: str, times: int = 1) -> str:
    """Translate a text."""
    return text


@tool()
def roll(
    context: ToolContext,
    sides: int = 6,
    bias: float | None = None,
    is_fair: bool = True,
    colour: Literal["red", "green"] = "red",
    names: list[str] | None = None,
) -> str:
    """Roll a die.

    Fairly."""
    return ""


TOOLS: Toolbox = {**all_tools(), "translate": translate, "roll": roll}


def command(text: str) -> Command:
    found = parse(text, TOOLS)
    assert found is not None
    return found


def arguments(text: str) -> dict[str, Any]:
    return dict(command(text).arguments)


def refused(text: str) -> BadCommand:
    with pytest.raises(BadCommand) as caught:
        parse(text, TOOLS)
    return caught.value


class TestMessages:
    @pytest.mark.parametrize(
        "text",
        [
            "hello",
            "",
            "/",
            "/ help",
            "what does /help do?",
            "/etc/hosts is empty",
            "/etc is a folder",
            "/tmp",
            "/help.txt is missing",
            "/help/me",
            "/9 is no command",
            "/fork是什么意思？",
            "//help",
            "// a remark",
            "/ask_user",
            "/finish_task done",
        ],
    )
    def test_what_does_not_begin_with_a_command_is_a_message(self, text: str) -> None:
        assert parse(text, TOOLS) is None

    @pytest.mark.parametrize(
        ("typed", "sent"),
        [
            ("//help", "/help"),
            ("  //help me", "/help me"),
            ("//text", "/text"),
            ("／／help", "/help"),
            ("// a remark\ncode()", "// a remark\ncode()"),
            ("/// <summary>", "/// <summary>"),
            ("hello // there", "hello // there"),
            ("/etc/hosts", "/etc/hosts"),
            ("  hello", "  hello"),
        ],
    )
    def test_two_slashes_send_one(self, typed: str, sent: str) -> None:
        assert parse(typed, TOOLS) is None
        assert unescape_slashes(typed) == sent

    @pytest.mark.parametrize(("typed", "meant"), [("/histroy 5", "history"), ("/sysmonitor cpu", "sys_monitor")])
    def test_a_slip_of_the_keys_is_not_sent_to_a_model(self, typed: str, meant: str) -> None:
        assert f"/{meant}" in refused(typed).problem
        assert "//" in refused(typed).problem

    def test_a_tool_that_this_agent_does_not_have_is_no_command(self) -> None:
        assert parse("/roll 6", all_tools()) is None


class TestTheHouse:
    @pytest.mark.parametrize(
        ("text", "name", "expected"),
        [
            ("/help", "help", {}),
            ("  /HELP  ", "help", {}),
            ("／help", "help", {}),
            ("/history", "history", {"limit": 20}),
            ("/history 5", "history", {"limit": 5}),
            ("/history 0", "history", {"limit": 1}),
            ("/history 999999999999999", "history", {"limit": 500}),
            ("/rollback", "rollback", {"turns": 1}),
            ("/rollback 3", "rollback", {"turns": 3}),
            ("/rollback #12", "rollback", {"seq": 12}),
            ("/rollback ＃12", "rollback", {"seq": 12}),
            ("/fork", "fork", {}),
            ("/fork #7", "fork", {"seq": 7}),
            ("/title  It's the   “build” server ", "title", {"title": "It's the “build” server"}),
            ("/title 构建服务器", "title", {"title": "构建服务器"}),
        ],
    )
    def test_they_are_understood(self, text: str, name: str, expected: dict[str, Any]) -> None:
        found = command(text)
        assert (found.name, dict(found.arguments), found.is_tool) == (name, expected, False)

    @pytest.mark.parametrize(
        ("text", "usage"),
        [
            ("/help me write a letter", "/help"),
            ("/history all", "/history [20]"),
            ("/history -1", "/history [20]"),
            ("/rollback to the start", "/rollback [1|#12]"),
            ("/fork 7 times", "/fork [#12]"),
            ("/title", "/title words…"),
            ("/history " + "9" * 5_000, "/history [20]"),
        ],
    )
    def test_what_does_not_fit_shows_the_usage(self, text: str, usage: str) -> None:
        error = refused(text)
        assert error.usage == usage
        assert str(error).endswith(f"Usage: {usage}")

    def test_a_title_is_not_endless(self) -> None:
        assert len(arguments("/title " + "x" * 1_000)["title"]) == 200


class TestTools:
    def test_a_word_becomes_the_first_argument(self) -> None:
        found = command("/sys_monitor cpu")
        assert (found.name, dict(found.arguments), found.is_tool) == ("sys_monitor", {"metric": "cpu"}, True)
        assert arguments("/sys_monitor") == {}
        assert arguments("/Sys_Monitor CPU") == {"metric": "cpu"}

    def test_it_becomes_the_request_of_a_call(self) -> None:
        request = command("/search_history 支付 limit=3").as_request("c1")
        assert (request.call_id, request.name) == ("c1", "search_history")
        assert request.arguments == '{"query": "支付", "limit": 3}'

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            ('"build server" limit=3', {"query": "build server", "limit": 3}),
            ("build server limit=3", {"query": "build server", "limit": 3}),
            ("limit=3 build server", {"query": "build server", "limit": 3}),
            ("apollo 13", {"query": "apollo 13"}),
            ('"apollo" 13', {"query": "apollo", "limit": 13}),
            ('query="build server"', {"query": "build server"}),
            ("query=“构建 服务器” role=user", {"query": "构建 服务器", "role": "user"}),
            ("「构建 服务器」 limit＝3", {"query": "构建 服务器", "limit": 3}),
            ("don't panic", {"query": "don't panic"}),
            ("'tis the season", {"query": "'tis the season"}),
            ('apples "red ones" -pear', {"query": 'apples "red ones" -pear'}),
            ("a=b x", {"query": "a=b x"}),
            ('"a \\"b\\" c"', {"query": 'a "b" c'}),
            ('""', {"query": ""}),
            ("x has_error=yes this_conversation=off", {"query": "x", "has_error": True, "this_conversation": False}),
        ],
    )
    def test_words_are_mapped_onto_parameters(self, line: str, expected: dict[str, Any]) -> None:
        assert arguments(f"/search_history {line}") == expected

    @pytest.mark.parametrize(
        ("line", "expected"),
        [
            (
                "20 0.5 no green a,b",
                {"sides": 20, "bias": 0.5, "is_fair": False, "colour": "green", "names": ["a", "b"]},
            ),
            ("names='Ada, Bob' 8", {"sides": 8, "names": ["Ada", "Bob"]}),
            ("names=甲、乙", {"names": ["甲", "乙"]}),
        ],
    )
    def test_values_take_the_type_of_the_parameter(self, line: str, expected: dict[str, Any]) -> None:
        assert arguments(f"/roll {line}") == expected

    def test_two_required_texts_are_taken_word_by_word(self) -> None:
        assert arguments("/translate hello de") == {"text": "hello", "into": "de"}
        assert arguments("/translate 'good day' into=de") == {"text": "good day", "into": "de"}

    @pytest.mark.parametrize(
        ("text", "problem"),
        [
            ("/search_history", "query is missing."),
            ("/translate hello", "into is missing."),
            ("/search_history x limit=many", "limit cannot be “many”."),
            ("/search_history x role=boss", "role cannot be “boss”."),
            ("/sys_monitor gpu", "metric cannot be “gpu”."),
            ("/sys_monitor cpu now please", "“now please” is not expected here."),
            ("/roll six", "sides cannot be “six”."),
            ("/roll is_fair=perhaps", "is_fair cannot be “perhaps”."),
            ("/roll bias=nan", "bias cannot be “nan”."),
            ("/roll " + "9" * 5_000, "sides cannot be “" + "9" * 80 + "”."),
        ],
    )
    def test_what_does_not_fit_shows_the_usage(self, text: str, problem: str) -> None:
        error = refused(text)
        assert error.problem == problem
        assert error.usage.startswith(text.split()[0])
        assert error.usage in str(error)


class TestHelp:
    def test_usage_is_made_of_the_schema(self) -> None:
        usage = {one.name: one.usage for one in suggestions(TOOLS)}
        assert usage["sys_monitor"] == "/sys_monitor [cpu|memory|disk|all]"
        assert usage["current_time"] == "/current_time [zone…]"
        assert usage["translate"] == "/translate text into [times]"
        assert usage["roll"] == "/roll [sides] [bias] [yes|no] [red|green] [names]"
        assert usage["search_history"].startswith(
            "/search_history query… [limit=10] [role=user|assistant|tool|system] [tool=…]"
        )

    def test_every_command_has_a_line(self) -> None:
        names = [one.name for one in suggestions(TOOLS)]
        assert names == [
            "help", "history", "rollback", "fork", "context", "compress", "title",
            "current_time", "edit_notebook", "read_session", "search_history", "sys_monitor",
            "update_plan", "translate", "roll",
        ]  # fmt: skip
        assert all(one.description for one in suggestions(TOOLS))
        assert suggestions(TOOLS)[-1].description == "Roll a die."
        text = help_text(TOOLS)
        assert all(f"- `{one.usage}` {one.description}" in text for one in suggestions(TOOLS))


class TestAnyText:
    @given(st.text())
    def test_no_text_breaks_the_words_and_nothing_typed_is_lost(self, line: str) -> None:
        words = list(words_of(line))
        assert "".join("".join(word.raw.split()) for word in words) == "".join(line.split())

    @given(st.text(), st.sampled_from([one.name for one in suggestions(TOOLS)]))
    def test_a_command_is_understood_or_refused_and_what_is_understood_fits(self, line: str, name: str) -> None:
        try:
            found = command(f"/{name} {line}")
        except BadCommand:
            return
        if found.is_tool:
            tool = TOOLS[name]
            assert check_arguments(tool.parameters, found.arguments) == found.arguments

    def test_a_megabyte_of_quotes_is_quick(self) -> None:
        assert len(list(words_of('"a ' * 300_000))) == 300_000
