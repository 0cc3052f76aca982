"""Sentences of modules that know no language: English as they are, and still to be said otherwise."""

from __future__ import annotations

import json

import pytest
from django.utils.translation import override

from history.formats.base import FormatError, Note
from history.formats.reports import note_text, translate_sentence
from history.text.lazy import LazyText, error_text, lazy_from_json, lazy_to_json

LINE = LazyText("line %(number)s", number=7)
LEFT_OUT = LazyText(
    "%(problem)s: everything after it was left out", problem=LazyText("entry %(seq)s is missing", seq=3)
)


def test_a_sentence_is_english_by_itself_and_translated_with_what_was_filled_in() -> None:
    assert LEFT_OUT == "entry 3 is missing: everything after it was left out"
    with override("zh-hans"):
        assert translate_sentence(LEFT_OUT) == "缺少条目 3：其后的内容已略去"


def test_it_survives_being_kept_as_json() -> None:
    for text in (LEFT_OUT, LazyText(LEFT_OUT.sentence, problem=LazyText("this line is not valid JSON"))):
        kept = lazy_from_json(json.loads(json.dumps(lazy_to_json(text))))
        assert kept == text
        with override("zh-hans"):
            assert translate_sentence(kept) == translate_sentence(text)
    assert lazy_to_json("no sentence") is None


def test_a_sentence_that_is_filled_into_another_is_translated_too() -> None:
    with override("zh-hans"):
        assert (
            translate_sentence(LazyText(LEFT_OUT.sentence, problem=LazyText("this line is not valid JSON")))
            == "此行不是有效的 JSON：其后的内容已略去"
        )
        assert translate_sentence(LazyText(LEFT_OUT.sentence, problem="100 %")) == "100 %：其后的内容已略去"


def test_only_sentences_are_translated_and_never_what_people_wrote() -> None:
    with override("zh-hans"):
        note = Note(level="lost", what="the file ends within this session", where="a list")
        assert note_text(note) == "文件在此会话中途结束 – a list"
        assert note_text(Note(level="lost", what=note.what, where=LINE)).endswith("第 7 行")


def test_an_error_says_why_in_english_and_gives_its_sentence_to_others() -> None:
    with pytest.raises(FormatError, match=r"^entry 5 has no seal$") as caught:
        raise FormatError("entry %(seq)s has no seal", seq=5)
    with override("zh-hans"):
        assert translate_sentence(error_text(caught.value)) == "条目 5 没有校验值"
    assert error_text(KeyError("x")) == "'x'"
