"""Ways to run work beside the event loop."""
