"""Training loops: the order of collection, learning and logging."""
