"""Learners, groups of learners with shared gradients, and the engine that compiles gradient steps."""
