"""Long versions of what tests show in seconds: `python -m faults` (`make faults`). See docs/internals/testing.md."""
