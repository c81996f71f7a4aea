"""Model files: contents, writing, and checks on reading."""
