"""Snapshots of the public interface: URLs, settings, schema, protocols, error codes, commands, exports."""
