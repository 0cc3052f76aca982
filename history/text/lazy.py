"""Texts for people in modules that know no language: marked here, translated by whoever shows them (see `wording`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def gettext_noop(text: str) -> str:
    return text


class LazyText(str):
    """A text in English that still knows its sentence and what was filled in: both are needed to say it otherwise."""

    sentence: str
    values: Mapping[str, Any]

    def __new__(cls, sentence: str, /, **values: Any) -> LazyText:
        made = super().__new__(cls, sentence % values if values else sentence)
        made.sentence, made.values = sentence, values
        return made


class SaidError(ValueError):
    """Its text is for whoever brought what is wrong; `said` is the same, to be said in their language."""

    def __init__(self, sentence: str, /, **values: Any) -> None:
        self.said = sentence if isinstance(sentence, LazyText) else LazyText(sentence, **values)
        super().__init__(self.said)


def why_of(error: BaseException) -> str:
    return error.said if isinstance(error, SaidError) else str(error)


# As JSON.


def lazy_to_json(text: str) -> dict[str, Any] | None:
    """The sentence and its values; None of what is no more than a text."""
    if not isinstance(text, LazyText):
        return None
    values = {name: lazy_to_json(value) or value for name, value in text.values.items()}
    return {"sentence": text.sentence, "values": values}


def lazy_from_json(kept: Mapping[str, Any]) -> LazyText:
    values = {
        name: lazy_from_json(value) if isinstance(value, Mapping) else value for name, value in kept["values"].items()
    }
    return LazyText(kept["sentence"], **values)
