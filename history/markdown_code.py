"""Code between fences, as HTML: its language, a place for the page's copy button, and colours by class.

Pygments finds out what is what. Its patterns can be made slow, so only languages that people write here are coloured,
only so much of them in one text, no very long lines, and not for longer than a moment; what is left over is plain code,
which reads as well.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType

from history.markdown_work import Work

COLOURED_CHARS = 8_000
COLOURED_LINE_CHARS = 300
COLOURED_SECONDS = 0.1

LANGUAGES = {
    "bash", "c", "c++", "console", "cpp", "cs", "csharp", "css", "diff", "docker", "dockerfile", "go", "golang", "html",
    "ini", "java", "javascript", "js", "json", "jsx", "kotlin", "lua", "php", "powershell", "ps1", "py", "py3", "pycon",
    "python", "python3", "rb", "rs", "ruby", "rust", "scala", "sh", "shell", "sql", "swift", "toml", "ts", "tsx",
    "typescript", "xml", "yaml", "yml", "zsh",
}  # fmt: skip
"""By the names that Pygments knows them by. Others are shown without colours."""

CLASSES: dict[_TokenType, str] = {
    Comment: "hl-comment",
    Keyword: "hl-keyword",
    Operator.Word: "hl-keyword",
    String: "hl-string",
    Literal: "hl-string",
    Number: "hl-number",
    Name.Class: "hl-name",
    Name.Decorator: "hl-name",
    Name.Function: "hl-name",
    Name.Builtin: "hl-known",
    Name.Tag: "hl-known",
    Name.Attribute: "hl-known",
    Generic.Inserted: "hl-inserted",
    Generic.Deleted: "hl-deleted",
    Generic.Heading: "hl-heading",
    Generic.Subheading: "hl-heading",
    Generic.Prompt: "hl-comment",
}

_LANGUAGE = re.compile(r"[\w+#.-]{1,30}")


class Colours:
    """What may still be coloured in one text."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.chars, self.seconds = COLOURED_CHARS, COLOURED_SECONDS

    def of(self, code: str, *, language: str) -> str:
        """The code as HTML, in colours if there are any left."""
        # Only here: its list of languages takes two megabytes, which a process that shows no code never needs.
        from pygments.lexers import get_lexer_by_name

        long_line = max(map(len, code.split("\n"))) > COLOURED_LINE_CHARS
        if language.lower() not in LANGUAGES or len(code) > self.chars or long_line:
            return escape(code)
        self.chars -= len(code)
        self.work.spend(3 * len(code))
        lexer = get_lexer_by_name(language.lower(), stripnl=False, ensurenl=False)
        found = list(self._in_time(lexer.get_tokens(code)))
        seen = "".join(text for _, text in found)
        # What a lexer did not come to is plain; one that took something away is not believed at all.
        return _as_html(found) + escape(code[len(seen) :]) if code.startswith(seen) else escape(code)

    def _in_time(self, tokens: Iterable[tuple[_TokenType, str]]) -> Iterator[tuple[_TokenType, str]]:
        began = time.thread_time()
        for number, token in enumerate(tokens):
            if number % 20 == 19 and time.thread_time() - began > self.seconds:
                break
            yield token
        self.seconds -= time.thread_time() - began


def code_block(code: str, *, info: str, colours: Colours) -> str:
    """`info` is what stands behind the fence; its first word names the language."""
    named = _LANGUAGE.match(info.strip())
    language = named[0] if named else ""
    label = f'<span class="code-lang">{escape(language)}</span>' if language else ""
    kind = ' class="mermaid-source"' if language.lower() == "mermaid" else ""
    inside = colours.of(f"{code}\n", language=language)  # a lexer may know a comment by the end of its line
    return (
        f'<div class="code"><div class="code-head">{label}</div>'
        f'<pre{kind} tabindex="0"><code>{inside}</code></pre></div>'
    )


def _as_html(tokens: Iterable[tuple[_TokenType, str]]) -> str:
    return "".join(
        _span(name, escape("".join(text for _, text in together)))
        for name, together in groupby(tokens, key=lambda token: _class_of(token[0]))
    )


def _span(name: str, text: str) -> str:
    return f'<span class="{name}">{text}</span>' if name else text


def _class_of(kind: _TokenType | None) -> str:
    while kind is not None:
        if kind in CLASSES:
            return CLASSES[kind]
        kind = kind.parent
    return ""
