"""File formats for import and export, one module each; see docs/import.md and docs/export.md."""
