"""A schema is made from a typed signature, and arguments are held against it."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest

from relay.tools.base import BadArguments, ToolContext, check_arguments, schema_of, tool


def weather(
    context: ToolContext,
    place: Annotated[str, "A town."],
    days: int = 3,
    wind: float | None = None,
    is_metric: bool = True,
    unit: Literal["c", "f"] = "c",
    hours: list[str] | None = None,
) -> str:
    """Tell the weather.

    And what to wear.
    """
    return ""


SCHEMA = schema_of(weather)


def refused(arguments: Any) -> str:
    with pytest.raises(BadArguments) as caught:
        check_arguments(SCHEMA, arguments)
    return str(caught.value)


def test_a_signature_gives_types_defaults_descriptions_and_what_is_required() -> None:
    assert SCHEMA == {
        "type": "object",
        "properties": {
            "place": {"type": "string", "description": "A town."},
            "days": {"type": "integer", "default": 3},
            "wind": {"type": "number"},
            "is_metric": {"type": "boolean", "default": True},
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "hours": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["place"],
        "additionalProperties": False,
    }


def test_the_name_and_the_docstring_become_the_name_and_the_description() -> None:
    made = tool()(weather)
    assert (made.name, made.description) == ("weather", "Tell the weather.\n\nAnd what to wear.")
    assert made.definition.parameters["required"] == ("place",)
    assert tool(name="forecast")(weather).name == "forecast"


def test_a_type_that_has_no_schema_is_refused_when_the_tool_is_made() -> None:
    def odd(context: ToolContext, when: dict[str, int]) -> str:
        return ""

    with pytest.raises(TypeError, match="no schema can be made of"):
        schema_of(odd)


def test_good_arguments_pass_as_they_are() -> None:
    given = {"place": "Ulm", "days": 2, "wind": 3, "is_metric": False, "unit": "f", "hours": ["8", "9"]}
    assert check_arguments(SCHEMA, given) == given


def test_a_null_means_left_out_where_that_is_allowed() -> None:
    assert check_arguments(SCHEMA, {"place": "Ulm", "days": None, "wind": None}) == {"place": "Ulm"}
    assert refused({"place": None}) == "place must be a string, not null"


def test_a_whole_number_may_be_written_with_a_point() -> None:
    found = check_arguments(SCHEMA, {"place": "Ulm", "days": 2.0})["days"]
    assert (found, type(found)) == (2, int)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the arguments must be an object, not a list"),
        ("cpu", 'the arguments must be an object, not the text "cpu"'),
        ({}, "place is missing"),
        ({"place": 7}, "place must be a string, not 7"),
        ({"place": 1, "days": 1.5}, "place must be a string, not 1; days must be a whole number, not 1.5"),
        ({"place": "Ulm", "days": "three"}, 'days must be a whole number, not the text "three"'),
        ({"place": "Ulm", "days": True}, "days must be a whole number, not true"),
        ({"place": "Ulm", "is_metric": 1}, "is_metric must be true or false, not 1"),
        ({"place": "Ulm", "unit": "k"}, 'unit must be one of c, f, not the text "k"'),
        ({"place": "Ulm", "hours": "8"}, 'hours must be a list, not the text "8"'),
        ({"place": "Ulm", "hours": ["8", 9]}, "item 2 of hours must be a string, not 9"),
        ({"place": {"a": 1}}, "place must be a string, not an object"),
        (
            {"place": "Ulm", "town": "Ulm"},
            "there is no parameter town; there are: place, days, wind, is_metric, unit, hours",
        ),
    ],
)
def test_what_is_wrong_is_said_exactly(arguments: Any, said: str) -> None:
    assert refused(arguments) == said


def test_a_long_text_is_not_repeated_whole() -> None:
    assert len(refused({"place": "Ulm", "days": "x" * 10_000})) < 200


def test_a_foreign_schema_may_say_more_than_ours() -> None:
    schema = {
        "type": "object",
        "properties": {
            "at": {"type": ["string", "null"], "format": "date"},
            "who": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
            "any": {"oneOf": [{"type": "string"}]},
        },
    }
    assert check_arguments(schema, {"at": "x", "who": {"name": "Ada"}, "any": 3, "more": 1}) == {
        "at": "x",
        "who": {"name": "Ada"},
        "any": 3,
        "more": 1,
    }
    with pytest.raises(BadArguments, match=r"at must be a string or null, not 3; who\.name is missing"):
        check_arguments(schema, {"at": 3, "who": {}})
