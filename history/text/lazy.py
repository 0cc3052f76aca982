"""Texts that are marked here and translated when a page shows them (`lazy_texts` of the presentation layer)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Self


def gettext_noop(text: str) -> str:
    return text


class LazyText(str):
    """An English text that remembers its template and values, so that it can be translated later."""

    sentence: str
    values: Mapping[str, object]

    def __new__(cls, sentence: str, /, **values: object) -> "LazyText":
        made = super().__new__(cls, sentence % values if values else sentence)
        made.sentence, made.values = sentence, values
        return made


class SentenceCode(StrEnum):
    """Base of stable codes with an English template that a page translates and fills in."""

    _value_: str
    sentence: str

    def __new__(cls, code: str, sentence: str = "") -> Self:
        member = str.__new__(cls, code)
        member._value_, member.sentence = code, sentence
        return member


class LazyTextError(ValueError):
    """An error with a translatable text for the user whose input is wrong."""

    def __init__(self, sentence: str, /, **values: object) -> None:
        self.lazy_text = sentence if isinstance(sentence, LazyText) else LazyText(sentence, **values)
        super().__init__(self.lazy_text)


def error_text(error: BaseException) -> str:
    return error.lazy_text if isinstance(error, LazyTextError) else str(error)


def lazy_to_json(text: object) -> dict[str, Any] | None:
    """The template and its values; None for a plain text."""
    if not isinstance(text, LazyText):
        return None
    values = {name: lazy_to_json(value) or value for name, value in text.values.items()}
    return {"sentence": text.sentence, "values": values}


def lazy_from_json(stored: Mapping[str, Any]) -> LazyText:
    values = stored["values"].items()
    filled = {name: lazy_from_json(value) if isinstance(value, Mapping) else value for name, value in values}
    return LazyText(str(stored["sentence"]), **filled)
