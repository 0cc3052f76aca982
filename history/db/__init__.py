"""Database access below the record: connections and the values that pass through them."""
