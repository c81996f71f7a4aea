"""Runners and learners in separate processes."""
