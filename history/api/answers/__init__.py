"""What is answered: each field with the words that the schema and /api/docs have for it."""

from history.api.answers.base import Answer, Error, Wrong
from history.api.answers.imports import ImportAnswer, ImportItemAnswer, NoteAnswer
from history.api.answers.rows import ExchangeAnswer, ToolCallAnswer, ToolCallsAnswer
from history.api.answers.search import CountAnswer, FacetAnswer, HitAnswer, PieceAnswer, SearchAnswer, SnippetAnswer
from history.api.answers.sessions import (
    CallAnswer,
    MessageAnswer,
    MessagesAnswer,
    SessionAnswer,
    SessionsAnswer,
    WholeMessageAnswer,
)

__all__ = [
    "Answer",
    "CallAnswer",
    "CountAnswer",
    "Error",
    "ExchangeAnswer",
    "FacetAnswer",
    "HitAnswer",
    "ImportAnswer",
    "ImportItemAnswer",
    "MessageAnswer",
    "MessagesAnswer",
    "NoteAnswer",
    "PieceAnswer",
    "SearchAnswer",
    "SessionAnswer",
    "SessionsAnswer",
    "SnippetAnswer",
    "ToolCallAnswer",
    "ToolCallsAnswer",
    "WholeMessageAnswer",
    "Wrong",
]
