"""HTML of parsed Markdown, highlighted code, and the allow-list that the HTML passes.

Headings step down under the page's own. Images become links, so that no foreign server learns who reads what. The
writer escapes its input; the allow-list of another program (nh3) is the second line of defence. Pygments' patterns can
be made slow, so languages, lengths and time are limited; what is left over is plain code.
"""

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache, partial
from html import escape
from itertools import groupby

import nh3
from markdown_it.common.utils import unescapeAll
from markdown_it.token import Token
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType

from history.markdown.rules import Footnotes

MAX_CODE_CHARS = 8_000
MAX_LINE_CHARS = 300
MAX_SECONDS_PER_CHAR = 20e-6  # ordinary code takes one or two microseconds for a character
MIN_SECONDS = 0.005

# By the names that Pygments knows them by. Others are not highlighted.
LANGUAGES = {
    "bash", "c", "c++", "console", "cpp", "cs", "csharp", "css", "diff", "docker", "dockerfile", "go", "golang", "html",
    "ini", "java", "javascript", "js", "json", "jsx", "kotlin", "lua", "php", "powershell", "ps1", "py", "py3", "pycon",
    "python", "python3", "rb", "rs", "ruby", "rust", "scala", "sh", "shell", "sql", "swift", "toml", "ts", "tsx",
    "typescript", "xml", "yaml", "yml", "zsh",
}  # fmt: skip

_KINDS: dict[str, tuple[_TokenType, ...]] = {
    "hl-comment": (Comment, Generic.Prompt),
    "hl-keyword": (Keyword, Operator.Word),
    "hl-string": (String, Literal),
    "hl-number": (Number,),
    "hl-name": (Name.Class, Name.Decorator, Name.Function),
    "hl-known": (Name.Builtin, Name.Tag, Name.Attribute),
    "hl-inserted": (Generic.Inserted,),
    "hl-deleted": (Generic.Deleted,),
    "hl-heading": (Generic.Heading, Generic.Subheading),
}
CLASSES = {kind: name for name, kinds in _KINDS.items() for kind in kinds}

_LANGUAGE = re.compile(r"\S{1,30}")


class Highlighter:
    def __init__(self) -> None:
        self.chars = MAX_CODE_CHARS

    def highlight(self, code: str, *, language: str) -> str:
        # Only here: its list of languages takes two megabytes, which a process that shows no code never needs.
        from pygments.lexers import get_lexer_by_name

        has_long_line = max(map(len, code.split("\n"))) > MAX_LINE_CHARS
        if language.lower() not in LANGUAGES or len(code) > self.chars or has_long_line:
            return escape(code)
        self.chars -= len(code)
        lexer = get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
        tokens = list(_in_time(lexer.get_tokens(code), max(MIN_SECONDS, len(code) * MAX_SECONDS_PER_CHAR)))
        seen = "".join(text for _, text in tokens)
        # The rest that a lexer did not reach is plain. The result of a lexer that changed the code is not used at all.
        return _as_html(tokens) + escape(code[len(seen) :]) if code.startswith(seen) else escape(code)


def _in_time(tokens: Iterable[tuple[_TokenType, str]], seconds: float) -> Iterator[tuple[_TokenType, str]]:
    """The tokens that come within so many seconds of CPU time."""
    began = time.thread_time()
    for number, token in enumerate(tokens):
        if number % 20 == 19 and time.thread_time() - began > seconds:
            break
        yield token


def code_block(code: str, *, info: str, highlighter: Highlighter) -> str:
    """Return code with its head; the first word of `info`, the text behind the fence, names the language."""
    named = _LANGUAGE.match(unescapeAll(info[:200]).strip())
    code = code if code.endswith("\n") or not code else f"{code}\n"
    language = named[0] if named else ""
    label = f'<span class="code-lang">{escape(language)}</span>' if language else ""
    kind = ' class="mermaid-source"' if language.lower() == "mermaid" else ""
    inside = highlighter.highlight(code, language=language) if language else escape(code)
    head = f'<div class="code-head">{label}</div>'
    return f'<div class="code">{head}<pre{kind} tabindex="0"><code>{inside}</code></pre></div>'


def _as_html(tokens: Iterable[tuple[_TokenType, str]]) -> str:
    out = []
    for name, together in groupby(tokens, key=lambda token: _class_of(token[0])):
        text = escape("".join(text for _, text in together))
        out.append(f'<span class="{name}">{text}</span>' if name else text)
    return "".join(out)


def _class_of(kind: _TokenType) -> str:
    """The class of the nearest kind that has one: `Name.Function.Magic` is a `Name.Function`."""
    return next((CLASSES[one] for one in reversed(kind.split()) if one in CLASSES), "")


ALERTS = ("NOTE", "TIP", "IMPORTANT", "WARNING", "CAUTION")

_FIXED = {
    "alert_close": "</div>\n", "alert_title_open": '<p class="alert-title">', "alert_title_close": "</p>\n",
    "blockquote_open": "<blockquote>\n", "blockquote_close": "</blockquote>\n",
    "bullet_list_open": "<ul>\n", "bullet_list_close": "</ul>\n", "ordered_list_close": "</ol>\n",
    "list_item_close": "</li>\n", "hardbreak": "<br>\n", "softbreak": "<br>\n", "hr": "<hr>\n", "link_close": "</a>",
    "em_open": "<em>", "em_close": "</em>", "s_open": "<del>", "s_close": "</del>",
    "strong_open": "<strong>", "strong_close": "</strong>",
    "table_open": '<div class="table-box" tabindex="0"><table>\n', "table_close": "</table></div>\n",
    "thead_open": "<thead>\n", "thead_close": "</thead>\n", "tbody_open": "<tbody>\n", "tbody_close": "</tbody>\n",
    "tr_open": "<tr>\n", "tr_close": "</tr>\n", "th_close": "</th>\n", "td_close": "</td>\n",
}  # fmt: skip


class HtmlWriter:
    """Writes the HTML of one block or one text. A line break in a paragraph is shown, as in GitHub's comments."""

    def __init__(self, footnotes: Footnotes) -> None:
        self.footnotes, self.highlighter = footnotes, Highlighter()

    def write(self, tokens: Sequence[Token]) -> str:
        out: list[str] = []
        for place, token in enumerate(tokens):
            kind = token.type
            if kind == "inline":
                self._write_words(token.children or (), out)
            elif (fixed := _FIXED.get(kind)) is not None:
                out.append(fixed)
            else:
                out.append(self._block(token, tokens, place))
        return "".join(out)

    def _block(self, token: Token, tokens: Sequence[Token], place: int) -> str:
        match token.type:
            case "paragraph_open" | "paragraph_close" if not token.hidden:
                return "<p>" if token.nesting > 0 else "</p>\n"
            case "paragraph_close":  # in a list without gaps only its words
                return "\n" if place + 1 < len(tokens) and tokens[place + 1].type != "list_item_close" else ""
            case "heading_open" | "heading_close":
                name = token.tag if token.tag > "h3" else "h3"
                return f"<{name}>" if token.nesting > 0 else f"</{name}>\n"
            case "list_item_open":
                start, following = '<li class="task">' if "checked" in token.meta else "<li>", tokens[place + 1]
                return start if following.hidden or following.type == "list_item_close" else f"{start}\n"
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


def _link(token: Token, attribute: str) -> str:
    title = f' title="{escape(str(token.attrs["title"]))}"' if "title" in token.attrs else ""
    return f'<a href="{escape(str(token.attrs[attribute]))}"{title}>'


TAGS = {
    "a", "blockquote", "br", "code", "del", "div", "em", "h3", "h4", "h5", "h6", "hr", "kbd", "li", "ol", "p", "pre",
    "span", "strong", "sub", "sup", "table", "tbody", "td", "th", "thead", "tr", "ul",
}  # fmt: skip
ATTRIBUTES = {
    "a": {"href", "title"}, "div": {"class", "tabindex"}, "li": {"class", "id"}, "ol": {"start"}, "p": {"class"},
    "pre": {"class", "tabindex"}, "span": {"class"}, "sup": {"id"}, "td": {"align"}, "th": {"align"},
}  # fmt: skip
ALLOWED_CLASSES = {
    *CLASSES.values(), *(f"alert alert-{kind.lower()}" for kind in ALERTS), "alert-title", "code", "code-head",
    "code-lang", "footnotes", "math block", "math inline", "mermaid-source", "plain", "table-box", "task",
}  # fmt: skip
SCHEMES = {"http", "https", "mailto"}


def sanitize(html: str, *, anchors: re.Pattern[str] | None = None) -> str:
    return _cleaner(anchors).clean(html)


@lru_cache(maxsize=64)
def _cleaner(anchors: re.Pattern[str] | None) -> nh3.Cleaner:
    return nh3.Cleaner(
        tags=TAGS,
        attributes=ATTRIBUTES,
        attribute_filter=partial(_attribute, anchors=anchors),
        url_schemes=SCHEMES,
        link_rel="noopener nofollow",
    )


def _attribute(tag: str, name: str, value: str, *, anchors: re.Pattern[str] | None) -> str | None:
    """No relative addresses: a model has no business sending its reader to a page of this server."""
    match name:
        case "href":
            is_anchor = value[:1] == "#" and anchors is not None and anchors.fullmatch(value, 1)
            allowed = value.lower().partition(":")[0] in SCHEMES or is_anchor
        case "id":
            allowed = anchors is not None and anchors.fullmatch(value)
        case "class":
            allowed = value in ALLOWED_CLASSES
        case "align":
            allowed = value in {"left", "center", "right"}
        case _:
            allowed = True
    return value if allowed else None
