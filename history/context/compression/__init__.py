"""Compression of long contexts, without the model call: masks, stretches to summarise, checks of summaries.

A summary is an entry that replaces others in the context. Nothing is removed, and retracting it brings them back.

    planning (masks, stretches) → summaries (request to the summariser, checks) → planning (entries)
"""
