"""Kinds of algorithms: their fields and parts."""
