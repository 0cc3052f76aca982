"""How text becomes words, what a typed query means, and what a snippet shows: all without a database."""

import time

import pytest
from hypothesis import given, settings, strategies as st

from history.record.search_tokens import WORD_CHARS, fold, fold_unevenly, places_of, words_of
from history.search.queries import QUERY_WORDS, Query, Term, parse_query
from history.search.snippets import beginning_of, snippet_of

pytestmark = pytest.mark.no_database

# Text with everything that folding has to be careful with, more often than chance would have it.
TRICKY = (
    "aZ9 _-:\"*'éÉßﬁıİǅςΣ½²①㍿ﷺ支付〇々あがカｶﾞー゛"
    "ㅎㅏㄴ한\u1112\u1161\u11ab\u3099\u0301\u0345क्षिऩ়োাำน้مُآלָ\u00ad\u200d\u200c\ufe0f\u20e3😀\0\ud800"
)
texts = st.text(st.one_of(st.sampled_from(TRICKY), st.characters()), max_size=40)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The payment_failed(42) isn't OK.", "the payment failed 42 isn t ok"),
        ("Crème BRÛLÉE, naïve Škoda", "creme brulee naive skoda"),
        ("STRASSE straße ﬁne", "strasse strasse fine"),
        ("ΣΊΣΥΦΟΣ Σίσυφος", "σισυφοσ σισυφοσ"),
        ("ёлка Елка", "елка елка"),
        ("支付失败iPhone手机", "支 付 失 败 iphone 手 机"),
        ("ｶﾞｷﾞ　ガキ", "ガ ギ ガ キ"),
        ("か\u3099が", "が が"),
        ("コーヒー", "コ ー ヒ ー"),
        ("한국어 \u1112\u1161\u11ab", "한 국 어 한"),
        ("ＡＢＣ１２ m² Ⅷ", "abc12 m2 viii"),
        ("½ ㍿", "1 2 株 式 会 社"),
        ("soft\u00adhyphen", "softhyphen"),
        ("⚠️ done 👨‍👩‍👧", "done"),
        ("a\0b \ud800c", "a b c"),
        ("", ""),
    ],
)
def test_a_text_becomes_words(text: str, words: str) -> None:
    assert words_of(text) == words.split()


@pytest.mark.parametrize(("written", "typed"), [("مُحَمَّد", "محمد"), ("آب", "اب"), ("שָׁלוֹם", "שלום"), ("محـــمد", "محمد")])
def test_vowel_signs_that_writers_leave_out_make_no_difference(written: str, typed: str) -> None:
    assert words_of(written) == words_of(typed)


@pytest.mark.parametrize(("one", "other"), [("कि", "का"), ("बल", "बाल"), ("ปา", "ป่า"), ("が", "か"), ("パ", "バ")])
def test_marks_that_are_letters_make_a_difference(one: str, other: str) -> None:
    assert words_of(one) != words_of(other)


def test_the_same_letters_are_the_same_word_however_they_are_composed() -> None:
    assert words_of("\u09cb") == words_of("\u09c7\u09be")
    assert words_of("é") == words_of("e\u0301") == ["e"]
    assert words_of("ㅎ\u1161") == words_of("하")


def test_long_words_are_cut_alike_wherever_they_stand() -> None:
    assert words_of("x" * 1000) == ["x" * WORD_CHARS]
    assert words_of("é" + "x" * 1000) == ["e" + "x" * (WORD_CHARS - 1)]
    assert parse_query("x" * 1000).terms == (Term(("x" * WORD_CHARS,)),)


@settings(deadline=None)
@given(texts)
def test_words_hold_no_character_that_an_engine_could_misread(text: str) -> None:
    for word in words_of(text):
        assert 0 < len(word) <= WORD_CHARS
        assert not any(letter.isspace() or letter in "\0:'\"\\*()&|!<" for letter in word)
        word.encode()


@settings(deadline=None)
@given(texts)
def test_both_ways_of_folding_give_the_same_words(text: str) -> None:
    even, uneven = fold(text), fold_unevenly(text)
    assert words_of(even.text) == words_of(uneven.text)


@settings(deadline=None)
@given(texts)
def test_every_word_is_found_again_at_its_place(text: str) -> None:
    places = places_of(text)
    assert [word.text for word in places] == words_of(text)
    assert all(0 <= word.start < word.end <= len(text) for word in places)
    assert all(word.text in words_of(text[word.start : word.end]) for word in places)


@settings(deadline=None)
@given(texts, texts)
def test_a_space_keeps_words_apart(one: str, other: str) -> None:
    assert words_of(f"{one} {other}") == words_of(one) + words_of(other)


# Queries.


def phrase(*words: str, prefix: bool = False) -> Term:
    return Term(words, prefix)


@pytest.mark.parametrize(
    ("typed", "query"),
    [
        ("Payment failed", Query(((phrase("payment"),), (phrase("failed"),)))),
        ('"payment failed" now', Query(((phrase("payment", "failed"),), (phrase("now"),)))),
        ("pay*", Query(((phrase("pay", prefix=True),),))),
        ("p* 支*", Query(((phrase("p"),), (phrase("支"),)))),
        ('"could not pay*"', Query(((phrase("could", "not", "pay", prefix=True),),))),
        ("paid -refund -\"on hold\"", Query(((phrase("paid"),),), (phrase("refund"), phrase("on", "hold")))),
        ("a b OR c OR d", Query(((phrase("a"),), (phrase("b"), phrase("c"), phrase("d"))))),
        ("支付失败", Query(((phrase("支", "付", "失", "败"),),))),
        ("付", Query(((phrase("付"),),))),
        ("user@example.com", Query(((phrase("user", "example", "com"),),))),
        ("content:secret", Query(((phrase("content", "secret"),),))),
        ("NEAR(a b, 5)", Query(((phrase("near", "a"),), (phrase("b"),), (phrase("5"),)))),
        ("a AND b NOT c", Query(tuple((phrase(word),) for word in ("a", "and", "b", "not", "c")))),
        ("OR a OR", Query(((phrase("a"),),))),
        ("a OR -b", Query(((phrase("a"),),), (phrase("b"),))),
        ('"unbalanced quote', Query(((phrase("unbalanced", "quote"),),))),
        ("* -- - \" ' ( ) ^ : {} -* \"\" \0 \ud800", Query()),
        ("", Query()),
    ],
)  # fmt: skip
def test_a_query_is_understood(typed: str, query: Query) -> None:
    assert parse_query(typed) == query


def test_a_query_that_is_too_long_is_cut() -> None:
    query = parse_query("word " * 10_000)
    assert 0 < len(query.needed) <= QUERY_WORDS


@settings(deadline=None)
@given(st.one_of(texts, st.text(st.sampled_from('ab"-* OR支付():^{}'))))
def test_no_text_is_an_error(typed: str) -> None:
    query = parse_query(typed)
    assert all(term.words for term in (*query.terms, *query.excluded))


# Snippets.


def marked(text: str, typed: str) -> list[str]:
    snippet = snippet_of(text, parse_query(typed).terms)
    return [] if snippet is None else [piece for piece, is_match in snippet.pieces if is_match]


@pytest.mark.parametrize(
    ("text", "typed", "matches"),
    [
        ("The Payment failed, payments do.", "payment", ["Payment"]),
        ("The Payment failed, payments do.", "pay*", ["Payment", "payments"]),
        ("A payment failed. Failed payment.", '"failed payment"', ["Failed payment"]),
        ("订单支付失败，支付超时", "支付", ["支付", "支付"]),
        ("Crème\u0301 brûlée", "creme", ["Crème\u0301"]),
        ("an ﬁne oﬃce", "fine OR office", ["ﬁne", "oﬃce"]),
        ("one ½ cup", "1", ["½"]),
        ("ｶﾞｽ", "ガス", ["ｶﾞｽ"]),
        ("x" * 70 + " y", "x" * 70, ["x" * 70]),
        ("foo_bar foo bar foobar", "foo_bar", ["foo_bar", "foo bar"]),
        ("nothing here", "elsewhere", []),
    ],
)
def test_a_snippet_marks_what_was_found(text: str, typed: str, matches: list[str]) -> None:
    assert marked(text, typed) == matches


@pytest.mark.parametrize("typed", ["aa", "aaa*", '"aa b"', "zz"])
def test_a_word_of_a_megabyte_costs_no_more_than_a_megabyte_of_words(typed: str) -> None:
    began = time.process_time()
    snippet_of("a" * 1_000_000, parse_query(typed).terms)
    assert time.process_time() - began < 5


def test_a_snippet_shows_the_surroundings_of_the_first_match_only() -> None:
    text = "before " * 500 + "needle " + "after " * 500 + "needle"
    snippet = snippet_of(text, parse_query("needle").terms)
    assert snippet is not None
    assert snippet.is_cut_before
    assert snippet.is_cut_after
    assert snippet.text in text
    assert len(snippet.text) < 300
    assert [piece for piece in snippet.pieces if piece[1]] == [("needle", True)]
    assert snippet.text.startswith("before")


def test_a_hit_without_words_shows_its_beginning() -> None:
    snippet = beginning_of("word " * 100)
    assert not snippet.is_cut_before
    assert snippet.is_cut_after
    assert snippet.text.startswith("word word")


@settings(deadline=None)
@given(texts, texts)
def test_the_pieces_of_a_snippet_are_the_text_itself(text: str, typed: str) -> None:
    snippet = snippet_of(text, parse_query(typed).terms) if parse_query(typed).terms else beginning_of(text)
    if snippet is not None:
        assert snippet.text in text


@settings(deadline=None)
@given(texts, st.data())
def test_every_word_of_a_text_can_be_shown_in_it(text: str, data: st.DataObject) -> None:
    words = words_of(text)
    if words:
        start = data.draw(st.integers(0, len(words) - 1))
        end = data.draw(st.integers(start + 1, len(words)))
        assert snippet_of(text, (Term(tuple(words[start:end])),)) is not None
