"""The relay beside a bare one that records nothing, under the same server: `python -m bench.relay`."""
