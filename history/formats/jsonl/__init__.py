"""Parley's own JSONL format: complete sessions, exported and restored. docs/export.md describes its lines."""

from history.formats.jsonl.lines import FORMAT, ExtraSection, is_header, register_section
from history.formats.jsonl.restoring import restore
from history.formats.jsonl.writing import JsonlWriter

__all__ = ["FORMAT", "ExtraSection", "JsonlWriter", "is_header", "register_section", "restore"]
