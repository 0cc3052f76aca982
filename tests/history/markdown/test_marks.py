"""What Markdown itself does not know and models write all the same: tasks, footnotes, formulas."""

from __future__ import annotations

import re

import pytest

from history.markdown import render


def test_tasks_have_readable_boxes() -> None:
    html = render("- [ ] open\n- [x] done\n- [X] *too*\n- [] none\n\n1. [x] counted")
    assert '<li class="task">☐ open</li>\n<li class="task">☑ done</li>\n<li class="task">☑ <em>too</em></li>' in html
    assert "<li>[] none</li>" in html
    assert '<li class="task">☑ counted</li>' in html


def test_a_task_with_paragraphs_is_a_task() -> None:
    assert '<li class="task">\n<p>☑ done</p>\n<p>and how</p>' in render("- [x] done\n\n  and how\n")


def test_a_box_in_the_middle_of_an_item_or_in_code_is_text() -> None:
    assert "☐" not in render("- a [ ] b\n\n`[ ]`\n\n```\n- [ ] x\n```")


class TestFootnotes:
    def test_notes_stand_at_the_end_in_the_order_in_which_they_are_asked_for(self) -> None:
        html = render("One[^b] and two[^a].\n\n[^a]: Second\n[^b]: First *note*\n\nLast words.")
        assert "Last words.</p>\n<div class=" in html
        assert html.index("First <em>note</em>") < html.index("Second")
        assert html.count("<sup") == 2

    def test_a_note_leads_back_to_its_first_place(self) -> None:
        html = render("One[^1] and again[^1].\n\n[^1]: Note")
        assert '<sup id="fnref-1"><a href="#fn-1" rel="noopener nofollow">1</a></sup>' in html
        assert '<sup><a href="#fn-1"' in html
        assert '<li id="fn-1">\n<p>Note <a href="#fnref-1" rel="noopener nofollow">↩</a></p>' in html

    def test_ids_begin_with_the_prefix_and_are_unique(self) -> None:
        text = "One[^1], two[^2], one[^1].\n\n[^1]: a\n[^2]: b"
        places = re.findall(r' id="([^"]*)"', render(text, prefix="m1-") + render(text, prefix="m2-"))
        assert len(places) == len(set(places)) == 8
        assert {place[:3] for place in places} == {"m1-", "m2-"}

    def test_a_note_may_have_paragraphs_lists_and_code(self) -> None:
        html = render("a[^1]\n\n[^1]: First\n    line\n\n    - item\n\n    ```\n    code\n    ```\n\nb")
        assert "<p>First<br>\nline</p>" in html
        assert "<li>item</li>" in html
        assert "<code>code\n</code>" in html
        assert html.index("<p>b</p>") < html.index("First")

    def test_an_unreferenced_note_is_shown_without_a_link(self) -> None:
        html = render("a\n\n[^1]: Note")
        assert "Note" in html
        assert "↩" not in html

    def test_a_reference_without_a_note_is_text(self) -> None:
        assert render("a[^1] and [^x]") == "<p>a[^1] and [^x]</p>"

    def test_a_link_of_the_text_leads_to_no_other_place_of_the_page(self) -> None:
        assert "href" not in render("[a](#fn-1) [b](#m2-fn-1) [c](#top) [d](/admin/)", prefix="m1-")

    def test_two_notes_of_one_name_are_both_shown(self) -> None:
        html = render("a[^1]\n\n[^1]: one\n[^1]: two")
        assert "<p>one</p>" in html
        assert "<p>two " in html


class TestFormulas:
    @pytest.mark.parametrize("written", ["$a_1 * b_2 * c$", "\\(a_1 * b_2 * c\\)"])
    def test_emphasis_is_not_looked_for_in_a_formula(self, written: str) -> None:
        assert render(f"So {written}.") == '<p>So <span class="math inline">a_1 * b_2 * c</span>.</p>'

    @pytest.mark.parametrize(
        "written", ["$$a < b$$", "\\[a < b\\]", "$$\na < b\n$$", "\\[\na < b\n\\]", "  $$ a < b $$"]
    )
    def test_a_formula_with_lines_to_itself_is_a_block(self, written: str) -> None:
        html = render(f"Then\n{written}\nand so on.")
        assert html == '<p>Then</p>\n<div class="math block">a &lt; b</div>\n<p>and so on.</p>'

    def test_lines_of_a_formula_are_no_list_and_no_break(self) -> None:
        html = render("$$\n\\begin{aligned}\na &= b \\\\\n+ c\n- d\n\\end{aligned}\n$$")
        assert html == '<div class="math block">\\begin{aligned}\na &amp;= b \\\\\n+ c\n- d\n\\end{aligned}</div>'

    def test_a_display_formula_in_a_sentence_is_marked_there(self) -> None:
        assert render("So $$x$$ holds.") == '<p>So <span class="math block">x</span> holds.</p>'

    @pytest.mark.parametrize(
        "text",
        [
            "from $5 to $6", "$5, $6 and US$7", "($5) or ($6)", "$5-$6", "5$ and 6$", "a $ b $ c", "$HOME/lib:$PATH",
            "$ 5 $", "cost: $5/month, later $6/month", "$", "$$", "$$$", "A$AP and Ke$ha",
        ],
    )  # fmt: skip
    def test_prices_are_no_formulas(self, text: str) -> None:
        assert render(text) == f"<p>{text}</p>"

    def test_code_is_no_formula_and_an_escaped_dollar_is_a_dollar(self) -> None:
        assert render("`$x$` and \\$x\\$") == "<p><code>$x$</code> and $x$</p>"
        assert "math" not in render("```\n$$x$$\n```\n\n    $x$\n")

    def test_chinese_around_a_formula_does_not_hide_it(self) -> None:
        assert render("设$x$为") == '<p>设<span class="math inline">x</span>为</p>'

    def test_formulas_in_tables_lists_and_quotes_are_found(self) -> None:
        assert render("| $x$ | b |\n|--|--|\n| $y$ | c |").count("math inline") == 2
        assert render("- a\n\n  $$\n  x\n  $$\n- b").count('<div class="math block">x</div>') == 1
        assert "math inline" in render("> $x$")

    def test_a_formula_that_does_not_end_is_text(self) -> None:
        assert "math" not in render("$$\nx\n\ny\n\n\\[ z\n\n\\( a\n\n$b")
