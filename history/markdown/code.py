"""Code blocks as HTML: their language, a place for the page's copy button, and highlighting by class.

Pygments' patterns can be made slow, so languages, lengths and time are limited; what is left over is plain code.
"""

import re
import time
from collections.abc import Iterable, Iterator
from html import escape
from itertools import groupby

from markdown_it.common.utils import unescapeAll
from pygments.token import Comment, Generic, Keyword, Literal, Name, Number, Operator, String, _TokenType

MAX_CHARS = 8_000
MAX_LINE_CHARS = 300
# Ordinary code takes one or two microseconds for a character.
MAX_SECONDS_PER_CHAR = 20e-6
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
    """Highlights the code of one block, which may hold several pieces of code, up to a limit."""

    def __init__(self) -> None:
        self.chars = MAX_CHARS

    def highlight(self, code: str, *, language: str) -> str:
        """Return the code as HTML, highlighted as far as the limits allow."""
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
