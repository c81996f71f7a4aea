"""Episodes seen as if another goal had been desired."""
