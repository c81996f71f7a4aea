"""Compiled gradient steps, and what chooses how to run on this machine."""
