"""Trainings: who does what when."""
