"""Charts: what was recorded, by day and by model, key, agent, source or owner.

asked (an address, read and written) → points (rows of `tallies`, folded) → charts (series with their words)
"""

from history.pages.charts.charts import Chart, Picture, headlines, picture_for
from history.pages.charts.query import ChartQuery

__all__ = ["Chart", "ChartQuery", "Picture", "headlines", "picture_for"]
