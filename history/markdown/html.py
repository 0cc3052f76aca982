"""HTML of parsed Markdown, before it is sanitised.

Headings step down under the page's own, images become links so that no foreign server learns who reads what, tables
get a box that scrolls, code gets a head for its language and the page's copy button.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from markdown_it.token import Token

from history.markdown.code import Highlighter, code_block
from history.markdown.footnotes import Footnotes

ALERTS = ("NOTE", "TIP", "IMPORTANT", "WARNING", "CAUTION")

_FIXED = {
    "alert_close": "</div>\n",
    "alert_title_close": "</p>\n",
    "alert_title_open": '<p class="alert-title">',
    "blockquote_close": "</blockquote>\n",
    "blockquote_open": "<blockquote>\n",
    "bullet_list_close": "</ul>\n",
    "bullet_list_open": "<ul>\n",
    "em_close": "</em>",
    "em_open": "<em>",
    "hardbreak": "<br>\n",
    "hr": "<hr>\n",
    "link_close": "</a>",
    "list_item_close": "</li>\n",
    "ordered_list_close": "</ol>\n",
    "s_close": "</del>",
    "s_open": "<del>",
    "strong_close": "</strong>",
    "strong_open": "<strong>",
    "table_close": "</table></div>\n",
    "table_open": '<div class="table-box" tabindex="0"><table>\n',
    "tbody_close": "</tbody>\n",
    "tbody_open": "<tbody>\n",
    "td_close": "</td>\n",
    "th_close": "</th>\n",
    "thead_close": "</thead>\n",
    "thead_open": "<thead>\n",
    "tr_close": "</tr>\n",
    "tr_open": "<tr>\n",
}


class HtmlWriter:
    """Writes the HTML of one block or one text. With `soft_breaks`, a line break in the source is one on the page."""

    def __init__(self, footnotes: Footnotes, *, soft_breaks: bool = True) -> None:
        self.footnotes = footnotes
        self.highlighter = Highlighter()
        self.soft_break = "<br>\n" if soft_breaks else "\n"

    def write(self, tokens: Sequence[Token]) -> str:
        out: list[str] = []
        for place, token in enumerate(tokens):
            kind = token.type
            if kind == "inline":
                self._write_words(token.children or (), out)
            elif (fixed := _FIXED.get(kind)) is not None:
                out.append(fixed)
            elif kind in ("paragraph_open", "paragraph_close"):
                out.append(_paragraph(tokens, place))
            else:
                out.append(self._block(token, tokens, place))
        return "".join(out)

    def _block(self, token: Token, tokens: Sequence[Token], place: int) -> str:
        match token.type:
            case "heading_open" | "heading_close":
                name = token.tag if token.tag > "h3" else "h3"
                return f"<{name}>" if token.nesting > 0 else f"</{name}>\n"
            case "list_item_open":
                start = '<li class="task">' if "checked" in token.meta else "<li>"
                following = tokens[place + 1]
                is_inline = following.hidden or following.type == "list_item_close"
                return start if is_inline else f"{start}\n"
            case "ordered_list_open":
                return f'<ol start="{int(token.attrs["start"])}">\n' if "start" in token.attrs else "<ol>\n"
            case "th_open" | "td_open":
                align = str(token.attrs.get("style", "")).removeprefix("text-align:")
                return f'<{token.tag} align="{align}">' if align else f"<{token.tag}>"
            case "fence" | "code_block":
                return code_block(token.content, info=token.info, highlighter=self.highlighter) + "\n"
            case "math_block":
                return f'<div class="math block">{escape(token.content)}</div>\n'
            case "alert_open":
                return f'<div class="alert alert-{token.info.lower()}">\n'
            case "plain":
                return f"{plain_html(token.content)}\n"
        return ""

    def _write_words(self, children: Sequence[Token], out: list[str], *, in_link: bool = False) -> None:
        for token in children:
            kind = token.type
            if kind in ("text", "text_special"):
                out.append(escape(token.content, quote=False))
            elif (fixed := _FIXED.get(kind)) is not None:
                in_link = in_link and kind != "link_close"
                out.append(fixed)
            elif kind == "softbreak":
                out.append(self.soft_break)
            elif kind == "code_inline":
                out.append(f"<code>{escape(token.content, quote=False)}</code>")
            elif kind == "link_open":
                in_link = True
                out.append(_link(token, "href"))
            elif kind == "image":
                self._write_image(token, out, in_link=in_link)
            elif kind == "math":
                out.append(f'<span class="{token.info}">{escape(token.content)}</span>')
            elif kind == "tag":
                out.append(f"</{token.tag}>" if token.info == "paired end" else f"<{token.tag}>")
            elif kind == "footnote_reference":
                out.append(self._reference(token))

    def _write_image(self, token: Token, out: list[str], *, in_link: bool) -> None:
        words: list[str] = []
        self._write_words(token.children or (), words, in_link=True)
        label = "".join(words) or escape(str(token.attrs["src"]))
        out.append(label if in_link else f"{_link(token, 'src')}{label}</a>")

    def _reference(self, token: Token) -> str:
        number = token.meta["number"]
        place = f' id="{escape(self.footnotes.reference_anchor(number))}"' if token.meta["is_first"] else ""
        return f'<sup{place}><a href="#{escape(self.footnotes.anchor(number))}">{number}</a></sup>'

    def write_note(self, label: str, bodies: Sequence[Sequence[Token]]) -> str:
        """One footnote, with a link back to where it is referred to first."""
        number = self.footnotes.number_of(label)
        html = "".join(self.write(body) for body in bodies)
        if label in self.footnotes.referenced:
            back = f'<a href="#{escape(self.footnotes.reference_anchor(number))}">↩</a>'
            html = f"{html[:-5]} {back}</p>\n" if html.endswith("</p>\n") else f"{html}<p>{back}</p>\n"
        return f'<li id="{escape(self.footnotes.anchor(number))}">\n{html}</li>\n'


def plain_html(text: str) -> str:
    """The text as typed, lines kept."""
    return f'<div class="plain">{escape(text)}</div>'


def _paragraph(tokens: Sequence[Token], place: int) -> str:
    """A paragraph; in a list without gaps only its words."""
    token = tokens[place]
    if not token.hidden:
        return "<p>" if token.nesting > 0 else "</p>\n"
    goes_on = token.nesting < 0 and place + 1 < len(tokens) and tokens[place + 1].type != "list_item_close"
    return "\n" if goes_on else ""


def _link(token: Token, attribute: str) -> str:
    title = f' title="{escape(str(token.attrs["title"]))}"' if "title" in token.attrs else ""
    return f'<a href="{escape(str(token.attrs[attribute]))}"{title}>'
