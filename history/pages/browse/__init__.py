"""The browse page /history/: sessions or messages, narrowed by filters, with facets to narrow them further."""
