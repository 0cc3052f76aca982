"""Reader of `token_formats.toml`: the formats of API keys and tokens, with their macros expanded. No Django."""

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

SAFE = "[A-Za-z0-9_-]"
MACROS = {
    "safe": SAFE,
    "hex": "[a-f0-9]",
    "word": "[A-Za-z0-9]",
    "uuid": "[a-f0-9]{8}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{4}-[a-f0-9]{12}",
    # A random token holds a digit early on; an identifier of words does not.
    "digit": "(?=[A-Za-z_-]{0,60}[0-9])",
    "capital": "(?=[a-z0-9_-]{0,60}[A-Z])",
    "end": "(?![A-Za-z0-9+/=_-])",
}
_MACRO = re.compile(r"«(\w+) ?([^ »]*) ?([^»]*)»")
_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


def read_formats(table: str) -> Iterator[tuple[str, str, list[str]]]:
    """Name, needles and patterns of each format in a table of the file."""
    for name, (needles, *patterns) in _TABLES[table].items():
        yield name, needles, [_MACRO.sub(_expand, pattern) for pattern in patterns]


def _expand(macro: re.Match[str]) -> str:
    match macro.groups():
        case "starts", literal, before:
            return _starts(literal, before or "A-Za-z0-9")
        case "alone", literal, _:
            return _starts(literal, "A-Za-z0-9+/_-")
        case "border", before, _:  # where a token may begin that has no literal: `_starts` before its first character
            before = before or "A-Za-z0-9"
            return rf"(?:(?<![{before}])|(?<=\\[nrtbf])|(?<=%[0-9A-Fa-f]{{2}})|(?<=\\u[0-9A-Fa-f]{{4}}))"
    return MACROS[macro[1]]


def _starts(literal: str, before: str) -> str:
    """The literal, where no character of `before` precedes it, or an escape sequence does."""
    return (
        rf"{literal}(?:(?<![{before}]{literal})|(?<=\\[nrtbf]{literal})"
        rf"|(?<=%[0-9A-Fa-f]{{2}}{literal})|(?<=\\u[0-9A-Fa-f]{{4}}{literal}))"
    )
