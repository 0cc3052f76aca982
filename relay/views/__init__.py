"""The pages of the carrier."""
