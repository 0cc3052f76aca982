"""The page /charts/: numbers of the history by day."""
