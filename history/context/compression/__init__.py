"""Compression of long contexts: masks, stretches to summarise, checks of summaries: docs/internals/compression.md."""
