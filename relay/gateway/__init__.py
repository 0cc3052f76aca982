"""The programs' door: what is called under /v1 and /v1beta, carried to a model and written to the journal."""
