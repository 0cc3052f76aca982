"""Who may see what: permissions, keys and the audit chain."""
