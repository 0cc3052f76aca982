"""Charts: what was recorded, by day and by model, key, agent, source or owner.

asked (an address, read and written) → points (rows of `tallies`, folded) → charts (series with their words)
"""

from history.charting.asked import Asked
from history.charting.charts import Chart, Picture, headlines, picture_for

__all__ = ["Asked", "Chart", "Picture", "headlines", "picture_for"]
