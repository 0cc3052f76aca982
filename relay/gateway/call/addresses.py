"""Paths of the relay: the dialect and the kind of call of each.

The paths are the vendors' own (`HttpApi.paths`). Any other path is refused, because files, batches and stored answers
of all keys share one account upstream. An operator can list further paths in the file of PARLEY_PROVIDERS.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from history.dialects import DEFAULT_DIALECT, DIALECTS
from history.dialects.dialect import CallKind, HttpApi

_DOT_SEGMENT = re.compile(r"[/\\]\.{1,2}(?:[/\\]|$)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """`model` and `verb` are set for dialects that have them in the path. `path` is quoted as on the wire."""

    dialect: str
    kind: CallKind
    path: str
    model: str = ""
    verb: str = ""

    @property
    def api(self) -> HttpApi:
        return DIALECTS[self.dialect].HTTP_API

    def with_model(self, model: str) -> Address:
        if not self.model:
            return self
        path = self.api.path_for_model(self.path, model=model, verb=self.verb)
        return replace(self, path=path, model=model)


_KNOWN = {
    path: Address(dialect=name, kind=kind, path=path)
    for name, dialect in DIALECTS.items()
    for path, kind in dialect.HTTP_API.paths.items()
}


def find_address(method: str, path: str, raw: bytes = b"") -> Address | None:
    """`path` is decoded; `raw` is the same as the caller wrote it, and is sent on."""
    if method != "POST":
        return None
    if known := _KNOWN.get(path):
        return known
    for name, dialect in DIALECTS.items():
        found = dialect.HTTP_API.match_path(path)
        if found and not has_dot_segments(path):
            quoted = quote_path(path, raw)
            return Address(dialect=name, kind=found.kind, path=quoted, model=found.model, verb=found.verb)
    return None


def has_dot_segments(path: str) -> bool:
    """Whether a server that normalises the path, or decodes it again, would see another one than was checked."""
    return bool(_DOT_SEGMENT.search(path) or _DOT_SEGMENT.search(unquote(path)))


def quote_path(path: str, raw: bytes) -> str:
    """As the caller wrote it; characters that a URL cannot have are escaped."""
    return quote(raw.partition(b"?")[0] or path.encode("utf-8", "surrogatepass"), safe="/%:@!$&'()*+,;=~")


def guess_dialect(path: str, headers: Mapping[str, str]) -> str:
    """The dialect of a caller at any path, so that its client can read the error."""
    if known := _KNOWN.get(path):
        return known.dialect
    callers = (name for name, dialect in DIALECTS.items() if dialect.HTTP_API.is_caller(path, headers))
    return next(callers, DEFAULT_DIALECT)
