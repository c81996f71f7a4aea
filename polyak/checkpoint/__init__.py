"""Models as files: what is in them, how it is written, and how little of it is believed when it is read."""
