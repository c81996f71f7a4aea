"""Experience that was recorded before: episodes, where they come from, and how they are replayed."""
