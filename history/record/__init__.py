"""The record: what is derived from stored entries."""
