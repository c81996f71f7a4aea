"""Models as files: their contents, how they are written, and checks when they are read."""
