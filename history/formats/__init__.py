"""Other people's files, and ours: one module per format. docs/import.md and docs/export.md list them."""
