"""Context of a model call: rendered from the history, cut at turns, repaired with a report.

rendering (turns within the limits) → messages, repair → values; tokens
"""
