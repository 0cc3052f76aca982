"""One module per format that others read: each writes a session along the path to its head, and notes what it loses."""
