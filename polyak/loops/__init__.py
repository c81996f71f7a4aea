"""Trainings: what happens when."""
