"""Jupyter notebooks under ``polyak run``."""
