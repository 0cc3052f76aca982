"""Context of a model call: rendered from the history, cut at turns, repaired with a report.

rendering → turns → messages, repair → values, remarks; tokens
"""
