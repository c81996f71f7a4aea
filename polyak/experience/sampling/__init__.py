"""Which rows are drawn."""
