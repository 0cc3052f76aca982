"""Writers, one module per format: each writes the path to the head and notes losses."""
