"""Tags of client programs are separated from user text, and nothing else changes."""

from __future__ import annotations

from history.clients import TaggedText, split_client_tags


def test_blocks_on_lines_of_their_own_are_taken_out_in_their_order() -> None:
    text = "<system-reminder>\nBe brief.\n</system-reminder>\nFix it.\n<environment_context>/home</environment_context>"
    assert split_client_tags(text) == [
        TaggedText("Be brief.", tag="system-reminder"),
        TaggedText("\nFix it.\n"),
        TaggedText("/home", tag="environment_context"),
    ]


def test_a_tag_quoted_in_a_sentence_stays_there() -> None:
    for text in (
        "What does <system-reminder>x</system-reminder> mean?",
        "<b>bold</b>",
        "<instructions>mine</instructions>",
    ):
        assert split_client_tags(text) == [TaggedText(text)]


def test_a_block_that_is_never_closed_is_shown_as_it_stands() -> None:
    text = "<system-reminder>\n" * 2_000 + "said"
    assert split_client_tags(text) == [TaggedText(text)]


def test_nothing_is_nothing() -> None:
    assert split_client_tags("") == []
