"""Runners and learners in processes of their own."""
