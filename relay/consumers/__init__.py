"""The doors for whoever stays connected: pages that are shown HTML, and programs that speak JSON."""
