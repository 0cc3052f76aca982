"""Two column types: a hash as plain bytes, and search tokens in the form that each database indexes."""

from collections.abc import Sequence
from typing import Any

from django.db import models
from django.db.backends.base.base import BaseDatabaseWrapper


class HashField(models.BinaryField[Any, Any]):
    """A digest. SQLite gives bytes, PostgreSQL a memoryview; callers always get bytes."""

    def from_db_value(self, value: Any, *_: Any) -> bytes | None:
        return None if value is None else bytes(value)


class TokensField(models.TextField[str, str]):
    """The tokens of a text, in order: text that FTS5 indexes on SQLite, a tsvector on PostgreSQL.

    The value is the list of tokens joined by spaces. PostgreSQL gets the finished tsvector (`'word':1,4 'other':2`),
    so that its text parser does not run and both databases hold the same tokens at the same positions.
    """

    def db_type(self, connection: BaseDatabaseWrapper) -> str:
        return "tsvector" if connection.vendor == "postgresql" else "text"

    def get_placeholder(self, value: Any, compiler: Any, connection: BaseDatabaseWrapper) -> str:
        return "%s::tsvector" if connection.vendor == "postgresql" else "%s"

    def get_db_prep_value(self, value: Any, connection: BaseDatabaseWrapper, prepared: bool = False) -> Any:
        if connection.vendor == "postgresql" and isinstance(value, str):
            return tsvector(value.split())
        return value


def tsvector(tokens: Sequence[str]) -> str:
    """The literal of a tsvector with these tokens at positions 1, 2, …; tokens hold no quotes or backslashes."""
    positions: dict[str, list[str]] = {}
    for position, token in enumerate(tokens, 1):
        positions.setdefault(token, []).append(str(position))
    return " ".join(f"'{token}':{','.join(places)}" for token, places in positions.items())
