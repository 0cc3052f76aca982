"""What an agent can do besides talking. A tool is one small module with a typed function that gives its schema."""
