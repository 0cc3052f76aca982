"""Long versions of what the tests show in seconds: `python -m faults` (or `make faults`). See docs/testing.md."""
